//! Layouts in the words of other frameworks: snapshots, and that every part that is not expressed is named.

use proptest::prelude::*;
use quadrille_cost::native::Numbers;
use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_spec::{
    Activations, Axis, Grid, KeepWeights, Layout, LayoutRequest, Linear, Model, Overlap, Recompute, Schedule,
    SpecError, Zero,
};

pub(crate) const TARGET: Target = Target {
    gpus_per_node: 8,
    precision: Precision::Bf16,
    numbers: Numbers { gradients: None, moments: None, products: None },
    planned: None,
};

fn request(grid: &str, global_batch: usize) -> LayoutRequest {
    LayoutRequest::new(grid.parse().unwrap(), global_batch)
}

pub(crate) fn try_of(framework: Framework, model: &Model, request: &LayoutRequest) -> Result<Export, SpecError> {
    export(framework, model, &Layout::new(model, request).unwrap(), &TARGET)
}

fn of(framework: Framework, model: &str, request: &LayoutRequest) -> Export {
    try_of(framework, &Model::preset(model).unwrap(), request).unwrap()
}

/// Megatron's three axes: x, data and an interleaved pipeline, with sharded states and recomputation.
fn three_axes() -> LayoutRequest {
    LayoutRequest {
        activations: Activations::Scattered,
        schedule: Schedule::Interleaved,
        chunks: 2,
        microbatch: Some(1),
        recompute: Recompute::Full { every: 2 },
        zero: Zero::Optimizer,
        ..request("x=4,data=2,pipe=4", 16)
    }
}

/// AxoNN's four axes.
fn four_axes() -> LayoutRequest {
    LayoutRequest { activations: Activations::Replicated, ..request("x=2,y=2,z=2,data=2", 16) }
}

fn fsdp() -> LayoutRequest {
    LayoutRequest { microbatch: Some(16), ..request("z=16", 32) }
}

/// The text, and below it what it does not say.
pub(crate) fn shown(Export { text, cannot_express }: &Export) -> String {
    let gaps: String = cannot_express.iter().map(|gap| format!("! {gap}\n")).collect();
    format!("{text}---\n{gaps}")
}

fn snapshots(name: &str, model: &str, request: &LayoutRequest) {
    for (framework_name, framework) in Framework::ALL {
        insta::assert_snapshot!(format!("{name}_{framework_name}"), shown(&of(framework, model, request)));
    }
}

/// Megatron-LM and Megatron Bridge pad for each rank of tensor parallelism; the others take the model's vocabulary, which is told
/// where padding changes it: 128,256 rows are two multiples of 128.
#[test]
fn a_padded_vocabulary_is_said_or_named() {
    for (name, framework) in Framework::ALL {
        for (multiple, changes) in [(128, false), (1000, true)] {
            let padded = LayoutRequest { vocab_multiple: multiple, ..request("x=2,data=2", 16) };
            let Export { text, cannot_express } = of(framework, "llama3-8b", &padded);
            let said = ["--make-vocab-size-divisible-by", "make_vocab_size_divisible_by:"];
            let said = said.iter().any(|said| text.contains(&format!("{said} {multiple}")));
            let named = cannot_express.iter().any(|gap| gap.starts_with(&format!("vocab-multiple = {multiple}: ")));
            assert_eq!(named, changes && !said, "{name}: {cannot_express:?}");
            assert_eq!(said, framework.vocab_multiple() > 1, "{name}: {text}");
        }
    }
}

#[test]
fn three_axes_in_every_framework() {
    snapshots("three_axes", "llama3-8b", &three_axes());
}

#[test]
fn four_axes_in_every_framework() {
    snapshots("four_axes", "gpt-20b", &four_axes());
}

#[test]
fn sharded_weights_in_every_framework() {
    snapshots("fsdp", "llama3-8b", &fsdp());
}

#[test]
fn uneven_stages_and_long_sequences() {
    let uneven = LayoutRequest {
        microbatch: Some(1),
        stage_blocks: Some(vec![7, 8, 8, 9]),
        ..request("x=2,context=2,data=1,pipe=4", 8)
    };
    for framework in [Framework::Megatron, Framework::Torchtitan] {
        insta::assert_snapshot!(format!("uneven_{framework}"), shown(&of(framework, "llama3-8b", &uneven)));
    }
}

/// What each framework lacks, by a layout that has it and nothing else, and the word by which it is named.
#[test]
fn every_part_that_is_not_expressed_is_named() {
    use Framework::{Axonn, DeepSpeed, Megatron, Nemo, Torchtitan};
    let plain = |grid: &str| LayoutRequest { microbatch: Some(4), ..request(grid, 32) };
    let replicated = |grid: &str| LayoutRequest { activations: Activations::Replicated, ..plain(grid) };
    let all = [Megatron, Torchtitan, DeepSpeed, Nemo, Axonn].as_slice();
    let not_axonn = [Megatron, Torchtitan, DeepSpeed, Nemo].as_slice();
    let megatrons = [Megatron, Nemo].as_slice();
    let no_ors = Overlap { reduce_scatter: false, ..Overlap::ALL };
    let no_oar = Overlap { all_reduce: false, ..Overlap::ALL };
    let cases: Vec<(&str, LayoutRequest, &[Framework])> = vec![
        ("y=2:", replicated("x=2,y=2"), not_axonn),
        ("linear = summa:", LayoutRequest { linear: Linear::Summa, ..plain("x=2,y=2") }, all),
        ("overlap-chunks = 2:", LayoutRequest { overlap_chunks: 2, ..plain("x=2") }, all),
        (
            "cac:",
            LayoutRequest { recompute: Recompute::Full { every: 1 }, keep_communicated: true, ..plain("x=2") },
            all,
        ),
        ("order = data,x:", order(&plain("x=2,data=2"), "data,x,y,z"), all),
        ("schedule = zb-h1:", LayoutRequest { schedule: Schedule::ZeroBubble, ..plain("pipe=2") }, all),
        (
            "schedule = gpipe:",
            LayoutRequest { schedule: Schedule::Gpipe, ..plain("pipe=2") },
            &[Megatron, DeepSpeed, Nemo, Axonn],
        ),
        (
            "schedule = message-driven:",
            LayoutRequest { schedule: Schedule::MessageDriven, ..plain("pipe=2") },
            not_axonn,
        ),
        ("schedule = 1f1b:", plain("pipe=2"), &[Axonn]),
        ("activations = replicated:", replicated("x=2"), &[Torchtitan]),
        ("activations = scattered:", plain("x=2"), &[DeepSpeed, Axonn]),
        ("recompute = selective:", LayoutRequest { recompute: Recompute::Selective, ..plain("x=2") }, all),
        (
            "recompute = full:2:",
            LayoutRequest { recompute: Recompute::Full { every: 2 }, ..plain("x=2") },
            &[Torchtitan, DeepSpeed, Axonn],
        ),
        ("train_batch_size = 32:", replicated("x=2"), &[DeepSpeed]),
        ("context=2 beside x*y=2, pipe=1:", plain("x=2,context=2"), &[DeepSpeed]),
        ("x*y=2 beside pipe=2:", plain("x=2,pipe=2"), &[DeepSpeed]),
        ("zero = 1:", LayoutRequest { zero: Zero::Optimizer, ..plain("data=2") }, &[Torchtitan, Axonn]),
        ("zero = 1 beside z=2:", LayoutRequest { zero: Zero::Optimizer, ..plain("z=2,data=2") }, megatrons),
        ("data=2 beside z=2:", plain("z=2,data=2"), &[DeepSpeed]),
        ("expert=2:", plain("expert=2,data=2"), all),
        ("data=2 without z:", plain("x=2,data=2"), &[Torchtitan]),
        ("context=2:", plain("context=2"), &[Torchtitan, DeepSpeed]),
        ("context=2 beside z=2:", plain("context=2,z=2"), megatrons),
        (
            "keep-weights = step:",
            LayoutRequest { keep_weights: KeepWeights::Step, ..plain("z=2") },
            &[Torchtitan, Axonn],
        ),
        ("pipe=2:", plain("pipe=2"), &[DeepSpeed]),
        ("ZeRO stage 3 with pipe=2:", plain("z=2,pipe=2"), &[DeepSpeed]),
        ("stage-blocks:", LayoutRequest { stage_blocks: Some(vec![14, 18]), ..plain("pipe=2") }, &[DeepSpeed, Axonn]),
        ("overlap oag without ors:", LayoutRequest { overlap: no_ors, ..plain("z=2") }, megatrons),
        ("overlap:", LayoutRequest { overlap: no_ors, ..plain("z=2") }, &[Torchtitan]),
        ("overlap without oar:", LayoutRequest { overlap: no_oar, ..plain("x=2") }, not_axonn),
        (
            "microbatch-group = 4:",
            LayoutRequest { schedule: Schedule::Interleaved, chunks: 2, microbatch_group: Some(4), ..plain("pipe=2") },
            &[Torchtitan, DeepSpeed, Axonn],
        ),
        (
            "chunks = 2:",
            LayoutRequest { schedule: Schedule::Interleaved, chunks: 2, ..plain("pipe=2") },
            &[DeepSpeed, Axonn],
        ),
    ];
    let llama = Model::preset("llama3-8b").unwrap();
    for (word, request, lacking) in cases {
        for (name, framework) in Framework::ALL {
            let Ok(Export { cannot_express: gaps, .. }) = try_of(framework, &llama, &request) else {
                assert!(framework == Axonn && word.starts_with("context"), "{word} in {name} is refused");
                continue;
            };
            let named = gaps.iter().filter(|gap| gap.starts_with(word)).count();
            assert_eq!(named, usize::from(lacking.contains(&framework)), "{word} in {name}: {gaps:?}");
        }
    }
}

fn order(request: &LayoutRequest, order: &str) -> LayoutRequest {
    LayoutRequest { grid: request.grid.with_order(order.parse().unwrap()), ..request.clone() }
}

/// Without experts all frameworks see the shares of the batch as data parallelism, in whatever order expert and data are.
#[test]
fn expert_ranks_of_dense_models_are_exported_as_data() {
    let said = |framework, request: &LayoutRequest| {
        let Export { text, cannot_express } = of(framework, "llama3-8b", request);
        let text: Vec<String> = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        let gaps: Vec<String> = cannot_express.into_iter().filter(|gap| !gap.starts_with("expert=2:")).collect();
        (text, gaps)
    };
    let both = request("x=2,expert=2,data=2", 16);
    for (_, framework) in Framework::ALL {
        let data = said(framework, &request("x=2,data=4", 16));
        for request in [&both, &order(&both, "x,y,z,context,data,expert,pipe")] {
            assert_eq!(said(framework, request), data, "{framework}");
        }
        // With other ranks between them they are no single axis.
        let (_, apart) = said(framework, &order(&both, "expert,x,y,z,data"));
        assert!(apart.iter().any(|gap| gap.starts_with("order = expert,x,data:")), "{framework}: {apart:?}");
    }
}

/// A layout that a framework was made for leaves nothing out.
#[test]
fn layouts_that_are_expressed_whole_say_so() {
    let gaps = |framework, model, request: &LayoutRequest| of(framework, model, request).cannot_express;
    for framework in [Framework::Megatron, Framework::Nemo] {
        assert!(gaps(framework, "llama3-8b", &three_axes()).is_empty());
        assert!(gaps(framework, "llama3-8b", &fsdp()).is_empty());
        assert!(gaps(framework, "gpt-20b", &request("x=2,context=2,data=2", 8)).is_empty());
    }
    assert!(gaps(Framework::DeepSpeed, "llama3-8b", &fsdp()).is_empty());
    assert!(gaps(Framework::Axonn, "gpt-20b", &four_axes()).is_empty());
    // The one thing that torchtitan's Llama 3 has beside: scaled frequencies.
    let torchtitan = gaps(Framework::Torchtitan, "llama3-8b", &fsdp());
    assert!(matches!(&torchtitan[..], [only] if only.starts_with("rotary positions:")), "{torchtitan:?}");
}

/// The axis that AxoNN numbers first may be x or y; the other orders are named.
#[test]
fn axonn_takes_the_inner_axis_from_the_order() {
    let text = |axes: &str| of(Framework::Axonn, "gpt-20b", &order(&four_axes(), axes));
    let [xy, yx] = [text("x,y,z,data"), text("y,x,z,data")];
    let four_by_two = LayoutRequest { activations: Activations::Replicated, ..request("x=4,y=2", 16) };
    let [x_inner, y_inner] =
        ["x,y,z,data", "y,x,z,data"].map(|axes| of(Framework::Axonn, "gpt-20b", &order(&four_by_two, axes)));
    assert!(xy.cannot_express.is_empty() && yx.cannot_express.is_empty());
    // A layer that is not transposed contracts over G_intra_c: y in normal layers.
    assert!(
        x_inner.text.contains("G_intra_r=2,\n    G_intra_c=4,")
            && x_inner.text.contains("# qkv and up (gate and up): Linear(inputs, outputs, transpose=True")
    );
    assert!(
        y_inner.text.contains("G_intra_r=4,\n    G_intra_c=2,")
            && y_inner.text.contains("# qkv and up (gate and up): Linear(inputs, outputs, transpose=False")
    );
}

#[test]
fn what_would_be_something_else_is_refused() {
    let refusal =
        |framework, model: &Model, request: &LayoutRequest| try_of(framework, model, request).unwrap_err().to_string();
    let vit = Model::preset("vit-tiny").unwrap();
    for framework in [Framework::Megatron, Framework::Nemo, Framework::Torchtitan] {
        assert!(refusal(framework, &vit, &request("x=2", 4)).contains("reads patches"));
    }
    assert!(try_of(Framework::DeepSpeed, &vit, &request("data=2", 4)).is_ok());
    let both_ways = Model::preset("gpt-demo").unwrap().reshaped(|m| m.causal = false);
    assert!(refusal(Framework::Megatron, &both_ways, &request("x=2", 4)).contains("causal = false"));
    let gpt = Model::preset("gpt-20b").unwrap();
    // 56 heads over 4 * 4 ranks of tensor parallelism.
    let wide = LayoutRequest { activations: Activations::Replicated, ..request("x=4,y=4", 16) };
    for framework in [Framework::Megatron, Framework::Nemo, Framework::Torchtitan, Framework::DeepSpeed] {
        assert!(refusal(framework, &gpt, &wide).starts_with("x*y=16 does not divide heads = 56"));
    }
    assert!(try_of(Framework::Axonn, &gpt, &wide).is_ok());
    assert!(refusal(Framework::Axonn, &gpt, &request("context=2", 2)).contains("no axis that cuts sequences"));
    let odd = Model::gpt(2, 56, 7, 64, 16).reshaped(|m| {
        m.heads = 7;
        m.kv_heads = 7;
        m.hidden = 56;
    });
    assert!(
        refusal(Framework::DeepSpeed, &odd, &request("context=2", 2))
            .starts_with("context=2 does not divide heads = 7")
    );
    let fraction = Model::preset("llama-tiny").unwrap().reshaped(|m| m.rotary_base = 10_000.5);
    assert!(refusal(Framework::Megatron, &fraction, &request("x=2", 4)).starts_with("rotary_base = 10000.5"));
    for gpus_per_node in [0, 3] {
        let target = Target { gpus_per_node, ..TARGET };
        let layout = Layout::new(&gpt, &request("x=8", 8)).unwrap();
        for (_, framework) in Framework::ALL {
            assert!(export(framework, &gpt, &layout, &target).unwrap_err().to_string().starts_with("gpus-per-node"));
        }
    }
}

/// The numbers of a DeepSpeed configuration or of flags that multiply to the batch and the ranks.
fn number(text: &str, before: &str) -> usize {
    let at = text.find(before).unwrap_or_else(|| panic!("{before} in {text}")) + before.len();
    let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("a number after {before} in {text}"))
}

/// The ranks by which DeepSpeed multiplies the two other sizes of a batch where no model's code says more.
fn deepspeed_ranks(file: &serde_json::Value, ranks: usize) -> usize {
    let size = |key: &str| file[key].as_u64().map(|size| size as usize);
    size("data_parallel_size").unwrap_or_else(|| ranks / size("sequence_parallel_size").unwrap_or(1))
}

/// Fields of `[parallelism]` that torchtitan 0.2.1 and 0.2.2 both have, as far as layouts need them.
const TORCHTITAN_PARALLELISM: [&str; 10] = [
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "fsdp_reshard_after_forward",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "context_parallel_rotate_method",
    "pipeline_parallel_degree",
    "pipeline_parallel_schedule",
    "pipeline_parallel_microbatch_size",
    "module_fqns_per_model_part",
];

/// Values of `hidden / heads` columns beside keys of others were exported as if they were as wide as keys.
#[test]
fn values_of_another_width_than_keys_are_refused() {
    let set = |fields: &[(&str, &str)]| {
        let fields: Vec<_> = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Model::from_toml(Model::preset_text("gpt2-124m").unwrap(), &fields).unwrap()
    };
    let alike = set(&[("head_dim", "128")]);
    for framework in [Framework::Megatron, Framework::Nemo, Framework::Torchtitan] {
        assert!(try_of(framework, &alike, &request("x=2", 4)).is_ok());
        for (key, value) in [("128", "64"), ("64", "128"), ("128", "96")] {
            let model = set(&[("head_dim", key), ("value_dim", value)]);
            let message = try_of(framework, &model, &request("x=2", 4)).unwrap_err().to_string();
            assert!(message.starts_with(&format!("value_dim = {value}")), "{message}");
        }
    }
}

/// DeepSpeed counts every rank of tensor parallelism in a batch, and refused what said that they share sequences.
#[test]
fn deepspeed_is_told_no_batch_that_it_counts_otherwise() {
    let text = |grid: &str, batch| {
        let request =
            LayoutRequest { microbatch: Some(4), activations: Activations::Replicated, ..request(grid, batch) };
        serde_json::from_str::<serde_json::Value>(&of(Framework::DeepSpeed, "llama3-8b", &request).text).unwrap()
    };
    for (grid, batch, said) in [
        ("z=2,data=2", 16, Some(16)),
        ("z=2,context=2,data=2", 16, Some(16)),
        ("x=2,data=2", 8, None),
        ("y=2,z=2", 8, None),
        ("data=2,pipe=2", 8, None),
        ("x=2,context=2,data=2", 8, None),
    ] {
        let file = text(grid, batch);
        assert_eq!(file["train_batch_size"].as_u64(), said, "{grid}");
        assert!(file["gradient_accumulation_steps"].is_u64() && file["train_micro_batch_size_per_gpu"].is_u64());
    }
    // Groups of data and sequences alone do not reach all ranks where x cuts as well.
    let beside = text("x=2,context=2,data=2", 8);
    assert!(beside["data_parallel_size"].is_null() && beside["sequence_parallel_size"] == 2);
}

/// torchtitan 0.2.1 refuses a file with a field that it does not know.
#[test]
fn torchtitan_gets_no_field_that_a_release_lacks() {
    let text = of(
        Framework::Torchtitan,
        "llama3-8b",
        &LayoutRequest { microbatch: Some(1), ..request("context=2,pipe=2", 4) },
    )
    .text;
    let file: toml::Table = text.parse().unwrap();
    for (field, _) in file["parallelism"].as_table().unwrap() {
        assert!(TORCHTITAN_PARALLELISM.contains(&field.as_str()), "{field}");
    }
}

proptest! {
    /// Every text is well formed, and its sizes multiply to the layout's ranks and batch.
    #[test]
    fn sizes_multiply_to_ranks_and_batch(
        ranks in 1_usize..=16, pick in any::<prop::sample::Index>(), times in 1_usize..3, microbatches in 1_usize..3,
        schedule in prop::sample::select(Schedule::ALL.map(|(_, schedule)| schedule).to_vec()),
        zero in prop::sample::select(vec![Zero::Off, Zero::Optimizer, Zero::Gradients]),
    ) {
        let model = Model::preset("llama-tiny").unwrap();
        let grids = Grid::all_over(ranks, Axis::ALL.into_iter().collect());
        let grid = grids[pick.index(grids.len())];
        let size = |axis| grid.size(axis);
        let microbatch = size(Axis::Y) * size(Axis::Z) * times;
        let request = LayoutRequest {
            microbatch: Some(microbatch), schedule, zero,
            ..LayoutRequest::new(grid, microbatch * microbatches * grid.batch_shares())
        };
        let Ok(layout) = Layout::new(&model, &request) else { return Ok(()) };
        let target = Target { gpus_per_node: ranks, precision: Precision::F32, ..TARGET };
        for (_, framework) in Framework::ALL {
            let Ok(Export { text, cannot_express }) = export(framework, &model, &layout, &target) else { continue };
            prop_assert!(cannot_express.iter().all(|gap| gap.contains(": ") && !gap.contains('\n')));
            let tensor = size(Axis::X) * size(Axis::Y);
            let pipe = size(Axis::Pipe);
            match framework {
                Framework::Megatron => {
                    let used = [
                        number(&text, "--tensor-model-parallel-size "),
                        number(&text, "--pipeline-model-parallel-size "),
                        number(&text, "--context-parallel-size "),
                    ];
                    let data = ranks / used.iter().product::<usize>();
                    prop_assert_eq!((used[0], used[1], data), (tensor, pipe, size(Axis::Z) * grid.batch_shares()));
                    let passes = number(&text, "--global-batch-size ") / (number(&text, "--micro-batch-size ") * data);
                    prop_assert_eq!(passes, layout.microbatches());
                }
                Framework::Torchtitan => {
                    let file: toml::Table = text.parse().unwrap();
                    let axes = ["data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel",
                        "pipeline_parallel"];
                    let of = |axis: &str| file["parallelism"][&format!("{axis}_degree")].as_integer().unwrap() as usize;
                    let product: usize = axes.map(of).iter().product();
                    prop_assert_eq!(product, ranks);
                    let fields = file["parallelism"].as_table().unwrap();
                    prop_assert!(fields.keys().all(|field| TORCHTITAN_PARALLELISM.contains(&field.as_str())));
                    if pipe > 1 {
                        let parts = file["parallelism"]["module_fqns_per_model_part"].as_array().unwrap();
                        prop_assert_eq!(parts.len(), layout.pieces());
                        // Embedding, norm and head beside the blocks.
                        let modules: usize = parts.iter().map(|part| part.as_array().unwrap().len()).sum();
                        prop_assert_eq!(modules, model.layers() + 3);
                    }
                }
                Framework::DeepSpeed => {
                    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
                    let of = |key: &str| file[key].as_u64().unwrap() as usize;
                    let groups = size(Axis::Z) * grid.batch_shares();
                    let product = of("train_micro_batch_size_per_gpu") * of("gradient_accumulation_steps") * groups;
                    prop_assert_eq!(product, layout.global_batch);
                    let counted = deepspeed_ranks(&file, ranks);
                    let batch = &file["train_batch_size"];
                    prop_assert_eq!(batch.is_null(), tensor * pipe > 1);
                    prop_assert!(batch.is_null() || of("train_batch_size") * groups == product * counted);
                    if let Some(data) = file["data_parallel_size"].as_u64() {
                        prop_assert_eq!(data as usize * of("sequence_parallel_size"), ranks);
                    }
                }
                Framework::Nemo => {
                    prop_assert_eq!(number(&text, "tensor_model_parallel_size: "), tensor);
                    prop_assert!(text.lines().all(|line| line.starts_with('#') || line.contains(':')));
                }
                Framework::Axonn => {
                    let product: usize = ["G_inter=", "G_data=", "G_intra_r=", "G_intra_c=", "G_intra_d="]
                        .map(|name| number(&text, name)).iter().product();
                    prop_assert_eq!(product, ranks);
                }
            }
        }
    }
}
