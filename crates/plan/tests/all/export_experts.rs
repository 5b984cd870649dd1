//! Layouts of models with experts in the words of Megatron-LM, Megatron Bridge and torchtitan: snapshots, what each flag
//! says, and which ranks it means.

use quadrille_plan::export::{Export, Framework, export};
use quadrille_spec::{Axis, AxisSet, Grid, Layout, LayoutRequest, Model, Overlap, Zero};

use crate::export::{TARGET, shown, try_of};

/// The frameworks that are told of experts.
pub(crate) const TOLD: [Framework; 3] = [Framework::Megatron, Framework::Nemo, Framework::Torchtitan];

pub(crate) fn request(grid: &str, over: &str, global_batch: usize) -> LayoutRequest {
    let experts_over = Some(over.parse().unwrap());
    LayoutRequest { experts_over, microbatch: Some(1), ..LayoutRequest::new(grid.parse().unwrap(), global_batch) }
}

pub(crate) fn model(preset: &str, fields: &[(&str, &str)]) -> Model {
    let fields: Vec<_> = fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect();
    Model::from_toml(Model::preset_text(preset).unwrap(), &fields).unwrap()
}

pub(crate) fn of(framework: Framework, model: &Model, request: &LayoutRequest) -> Export {
    try_of(framework, model, request).unwrap()
}

fn snapshots(name: &str, model: &Model, request: &LayoutRequest) {
    for framework in TOLD {
        insta::assert_snapshot!(format!("experts_{name}_{framework}"), shown(&of(framework, model, request)));
    }
}

/// TED's way, which is Megatron's with expert tensor parallelism as wide as the other.
#[test]
fn experts_over_their_own_axis() {
    snapshots("own", &model("mixtral-8x7b", &[]), &request("x=2,expert=4,data=2", "expert", 16));
}

/// Tensor parallel attention, whole experts.
#[test]
fn experts_folded_over_x() {
    snapshots("x", &model("qwen3-30b-a3b", &[]), &request("x=4,expert=8", "x,expert", 16));
}

#[test]
fn experts_folded_over_context_in_stages() {
    let request = request("x=2,context=2,expert=2,pipe=2", "context,expert", 8);
    snapshots("context", &model("mixtral-8x7b", &[]), &request);
}

/// The value of a flag, of a field of YAML or of one of TOML.
fn said(text: &str, name: &str) -> Option<String> {
    let plain = |line: &str| line.trim().trim_end_matches(" \\").replacen(": ", " ", 1).replacen(" = ", " ", 1);
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(plain);
    lines.filter_map(|line| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned())).next()
}

fn flag(text: &str, name: &str) -> bool {
    text.lines().any(|line| line.trim().trim_end_matches(" \\") == name)
}

/// As many ranks have experts as the axes over which they are spread; x cuts each expert where it is none of them.
#[test]
fn degrees_follow_the_axes_over_which_experts_are_spread() {
    let mixtral = model("mixtral-8x7b", &[]);
    for (grid, over, parallel, tensor) in [
        ("x=2,expert=4", "expert", 4, 2),
        ("x=2,expert=4", "x,expert", 8, 1),
        ("x=2,context=4", "x,context", 8, 1),
        ("x=2,context=2", "context", 2, 2),
        ("z=2,expert=4", "z,expert", 8, 1),
        ("z=4,data=2", "z", 4, 1),
        ("x=2,data=4", "none", 1, 2),
        ("x=2,expert=4", "none", 1, 2),
    ] {
        let request = LayoutRequest { microbatch: Some(4), ..request(grid, over, 32) };
        for framework in TOLD {
            let text = of(framework, &mixtral, &request).text;
            let (one, other) = match framework {
                Framework::Megatron => ("--expert-model-parallel-size", "--expert-tensor-parallel-size"),
                Framework::Nemo => ("expert_model_parallel_size", "expert_tensor_parallel_size"),
                _ => ("expert_parallel_degree", "expert_tensor_parallel_degree"),
            };
            // torchtitan's second degree counts beside the first only.
            let tensor = if framework == Framework::Torchtitan && parallel == 1 { 1 } else { tensor };
            let degrees = [one, other].map(|name| said(&text, name).unwrap());
            assert_eq!(degrees, [parallel, tensor].map(|size: usize| size.to_string()), "{grid} {over} {framework}");
        }
    }
}

/// Megatron's softmax over the chosen is the one over all, divided by the sum of the chosen.
#[test]
fn routers_are_said_as_megatron_computes_them() {
    let flags = |fields: &[(&str, &str)]| {
        of(Framework::Megatron, &model("mixtral-8x7b", fields), &request("expert=4", "expert", 4)).text
    };
    let usual = flags(&[]);
    assert!(!flag(&usual, "--moe-router-pre-softmax"));
    assert_eq!(said(&usual, "--moe-router-score-function").unwrap(), "softmax");
    assert_eq!(said(&usual, "--moe-router-load-balancing-type").unwrap(), "seq_aux_loss");
    // A sequence's loss in every block, as here: 0.02 of the configuration, times 2 experts of a token, over 32 blocks.
    assert_eq!(said(&usual, "--moe-aux-loss-coeff").unwrap(), "0.00125");
    for absent in [
        "--moe-router-num-groups",
        "--moe-router-group-topk",
        "--moe-router-topk-scaling-factor",
        "--moe-z-loss-coeff",
        "--moe-layer-freq",
        "--moe-expert-capacity-factor",
    ] {
        assert_eq!(said(&usual, absent), None, "{absent}");
    }
    assert!(flag(&flags(&[("router_normalize", "false")]), "--moe-router-pre-softmax"));
    let single = flags(&[("experts_per_token", "1")]);
    assert!(flag(&single, "--moe-router-pre-softmax") && said(&single, "--moe-router-topk").unwrap() == "1");
    let sigmoid =
        flags(&[("router", "sigmoid"), ("router_scale", "2.5"), ("router_z_loss", "0.001"), ("balance", "none")]);
    assert!(!flag(&sigmoid, "--moe-router-pre-softmax"));
    for (name, value) in [
        ("--moe-router-score-function", "sigmoid"),
        ("--moe-router-topk-scaling-factor", "2.5"),
        ("--moe-z-loss-coeff", "0.001"),
        ("--moe-router-load-balancing-type", "none"),
        ("--moe-router-dtype", "fp32"),
        ("--moe-token-dispatcher-type", "alltoall"),
    ] {
        assert_eq!(said(&sigmoid, name).unwrap(), value, "{name}");
    }
    let grouped = flags(&[("router_groups", "4"), ("router_top_groups", "2")]);
    assert_eq!(said(&grouped, "--moe-router-num-groups").unwrap(), "4");
    assert_eq!(said(&grouped, "--moe-router-group-topk").unwrap(), "2");
    assert!(flag(&sigmoid, "--moe-grouped-gemm"));
    let of_step = flags(&[("balance", "batch")]);
    assert_eq!(said(&of_step, "--moe-router-load-balancing-type").unwrap(), "global_aux_loss");
    // Each of four ranks of data parallelism adds a fourth of the step's loss, and their gradients are averaged.
    assert_eq!(said(&of_step, "--moe-aux-loss-coeff").unwrap(), "0.005");
    let none = flags(&[("balance", "none"), ("balance_loss", "0.5")]);
    assert_eq!(said(&none, "--moe-aux-loss-coeff").unwrap(), "0");
    // A recipe of Megatron Bridge may have what is off here.
    let bridge = of(Framework::Nemo, &model("mixtral-8x7b", &[]), &request("expert=4", "expert", 4)).text;
    for (field, value) in [("moe_router_pre_softmax", "false"), ("moe_z_loss_coeff", "null"), ("moe_layer_freq", "1")] {
        assert_eq!(said(&bridge, field).unwrap(), value, "{field}");
    }
}

#[test]
fn widths_blocks_and_places_are_said() {
    let fields = [
        ("expert_every", "2"),
        ("expert_ffn", "1024"),
        ("ffn", "4096"),
        ("shared_ffn", "2048"),
        ("capacity", "1.25"),
        ("drop", "score"),
    ];
    let model = model("mixtral-8x7b", &fields);
    let request = request("expert=4", "expert", 4);
    let Export { text, cannot_express } = of(Framework::Megatron, &model, &request);
    for (name, value) in [
        ("--ffn-hidden-size", "4096"),
        ("--moe-ffn-hidden-size", "1024"),
        ("--moe-shared-expert-intermediate-size", "2048"),
        ("--moe-layer-freq", "'([0]+[1])*16'"),
        ("--moe-expert-capacity-factor", "1.25"),
        ("--moe-token-drop-policy", "probs"),
    ] {
        assert_eq!(said(&text, name).unwrap(), value, "{name}");
    }
    assert!(flag(&text, "--moe-pad-expert-input-to-capacity") && flag(&text, "--moe-shared-expert-overlap"));
    assert_eq!(cannot_express, [""; 0]);
    let waits = LayoutRequest { overlap: Overlap { all_to_all: false, ..Overlap::ALL }, ..request };
    assert!(!flag(&of(Framework::Megatron, &model, &waits).text, "--moe-shared-expert-overlap"));
    let bridge = of(Framework::Nemo, &model, &waits).text;
    assert!(said(&bridge, "moe_layer_freq").unwrap().starts_with("[0, 1, 0, 1, "));
}

/// The file of Qwen3, but for its experts.
fn without_experts() -> String {
    let lines = Model::preset_text("qwen3-30b-a3b").unwrap().lines();
    lines
        .filter(|line| !line.contains("expert") && !line.starts_with("balance"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Heads of Qwen3 are wider than their part of the stream, and normed.
#[test]
fn heads_are_said_where_they_are_not_as_usual() {
    let request = request("expert=4", "expert", 4);
    let qwen = model("qwen3-30b-a3b", &[]);
    let mixtral = model("mixtral-8x7b", &[]);
    let text = |framework, model: &Model| of(framework, model, &request).text;
    assert_eq!(said(&text(Framework::Megatron, &qwen), "--kv-channels").unwrap(), "128");
    assert!(flag(&text(Framework::Megatron, &qwen), "--qk-layernorm"));
    assert_eq!(said(&text(Framework::Nemo, &qwen), "kv_channels").unwrap(), "128");
    assert_eq!(said(&text(Framework::Nemo, &qwen), "qk_layernorm").unwrap(), "true");
    assert!(!flag(&text(Framework::Megatron, &mixtral), "--qk-layernorm"));
    assert_eq!(said(&text(Framework::Megatron, &mixtral), "--kv-channels"), None);
    assert_eq!(said(&text(Framework::Torchtitan, &qwen), "flavor").unwrap(), "\"30B-A3B\"");
    assert_eq!(said(&text(Framework::Torchtitan, &mixtral), "flavor").unwrap(), "\"mixtral-8x7b\"");
    // Without experts, where all other sizes are of that family.
    let dense = [("experts", "0"), ("layers", "36"), ("hidden", "4096"), ("kv_heads", "8"), ("ffn", "12288")];
    let dense = Model::from_toml(&without_experts(), &dense.map(|(field, value)| (field.to_owned(), value.to_owned())))
        .unwrap();
    let dense = try_of(Framework::Torchtitan, &dense, &LayoutRequest::new("data=4".parse().unwrap(), 4)).unwrap().text;
    assert_eq!(said(&dense, "flavor").unwrap(), "\"8B\"");
    // Other positions are another model.
    let other = model("qwen3-30b-a3b", &[("rotary_base", "500000")]);
    assert_eq!(said(&text(Framework::Torchtitan, &other), "flavor").unwrap(), "\"qwen3-30b-a3b\"");
}

/// Megatron puts the pipeline before data only where replicas of experts are replicas of the rest.
#[test]
fn stages_inside_data_need_experts_inside_tensor_and_context_parallelism() {
    let text = |grid: &str, over: &str| {
        let request = LayoutRequest { microbatch: Some(2), zero: Zero::Optimizer, ..request(grid, over, 16) };
        let order = "x,y,context,pipe,z,expert,data".parse().unwrap();
        let request = LayoutRequest { grid: request.grid.with_order(order), ..request };
        of(Framework::Megatron, &model("mixtral-8x7b", &[]), &request)
    };
    let inside = text("x=2,context=2,data=2,pipe=2", "x,context");
    assert!(flag(&inside.text, "--use-tp-pp-dp-mapping"));
    let outside = text("x=2,expert=2,data=2,pipe=2", "expert");
    assert!(!flag(&outside.text, "--use-tp-pp-dp-mapping"));
    assert!(outside.cannot_express.iter().any(|gap| gap.starts_with("order = x,pipe,expert,data:")));
}

/// Ranks `with` which one has the experts in Megatron's numbering: those of expert tensor parallelism are neighbours, then come
/// those of expert parallelism.
fn megatrons_group(rank: usize, parallel: usize, tensor: usize) -> Vec<usize> {
    let first = rank / (parallel * tensor) * parallel * tensor + rank % tensor;
    (0..parallel).map(|place| first + place * tensor).collect()
}

/// Every grid of 16 ranks and every set of axes: the groups of Megatron's degrees are those of the layout, unless a gap says no.
#[test]
fn experts_are_spread_over_the_ranks_that_megatron_takes() {
    let fields = [("experts", "16"), ("capacity", "0"), ("capacity_group", "0"), ("biases", "false"), ("layers", "4")];
    let model = model("moe-demo", &fields);
    let subsets =
        |mask: usize| Axis::SPREADING.iter().enumerate().filter(move |(i, _)| mask >> i & 1 == 1).map(|(_, axis)| axis);
    let mut whole = 0;
    let mut named = 0;
    for (grid, mask) in
        Grid::all_over(16, AxisSet::WORLD).into_iter().flat_map(|grid| (0..16).map(move |mask| (grid, mask)))
    {
        let over: AxisSet = subsets(mask).filter(|axis| grid.size(*axis) > 1).collect();
        let order = ["x,y,context,z,expert,data,pipe", "x,y,context,z,data,expert,pipe"][mask % 2].parse().unwrap();
        let grid = grid.with_order(order);
        let request = LayoutRequest { experts_over: Some(over), ..LayoutRequest::new(grid, 64) };
        let Some(layout) = Layout::if_legal(&model, &request) else { continue };
        let Ok(Export { text, cannot_express }) = export(Framework::Megatron, &model, &layout, &TARGET) else {
            continue;
        };
        let [parallel, tensor] = ["model", "tensor"]
            .map(|kind| said(&text, &format!("--expert-{kind}-parallel-size")).unwrap().parse::<usize>().unwrap());
        let mut agrees = (0..16).all(|rank| {
            let mut group = grid.group(rank, over);
            group.sort_unstable();
            group == megatrons_group(rank, parallel, tensor)
        });
        // One rank alone is a group in any order.
        agrees |= parallel == 1;
        let gap = cannot_express.iter().any(|gap| gap.starts_with("experts-over = "));
        assert_eq!(agrees, !gap, "{grid} {over}: {cannot_express:?}");
        whole += usize::from(!gap && parallel > 1);
        named += usize::from(gap);
    }
    assert!(whole > 100 && named > 100, "{whole} {named}");
}
