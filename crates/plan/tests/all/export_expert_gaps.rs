//! What of experts each framework cannot say, by a model and layout that have it, beside one that has not; and what is refused.

use quadrille_plan::export::Framework;
use quadrille_spec::{Activations, Dispatch, LayoutRequest, Overlap};

use crate::export::try_of;
use crate::export_experts::{TOLD, model, of, request};

type Fields = &'static [(&'static str, &'static str)];
/// A word by which a gap is named; a model and a layout that have it; others that have not; the frameworks that lack it.
type Cases<'a> = Vec<(&'a str, Fields, LayoutRequest, Fields, LayoutRequest, &'a [Framework])>;

/// What each framework lacks, by a model and layout that have it, beside one that has not.
#[test]
fn every_part_of_experts_that_is_not_expressed_is_named() {
    use Framework::{Megatron, Nemo, Torchtitan};
    let of_experts = |grid: &str| LayoutRequest { microbatch: Some(2), ..request(grid, "expert", 16) };
    let over = |grid: &str, over: &str| LayoutRequest { microbatch: Some(2), ..request(grid, over, 16) };
    let replicated = |request: LayoutRequest| LayoutRequest { activations: Activations::Replicated, ..request };
    let ordered = |order: &str| {
        let request = of_experts("expert=4,data=2");
        LayoutRequest { grid: request.grid.with_order(order.parse().unwrap()), ..request }
    };
    let quiet = Overlap { all_to_all: false, ..Overlap::ALL };
    let megatrons = [Megatron, Nemo].as_slice();
    let all = TOLD.as_slice();
    let one = of_experts("expert=4");
    let single = LayoutRequest { microbatch: Some(1), ..of_experts("expert=4") };
    let cases: Cases<'_> = vec![
        ("overlap oaa:", &[], one.clone(), &[], LayoutRequest { overlap: quiet, ..one.clone() }, all),
        ("expert-rows = 3:", &[], LayoutRequest { expert_rows: 3, ..one.clone() }, &[], one.clone(), all),
        (
            "experts-over = expert:",
            &[],
            of_experts("context=2,expert=2"),
            &[],
            over("context=2,expert=2", "context,expert"),
            all,
        ),
        (
            "experts-over = expert:",
            &[],
            ordered("x,y,z,context,data,expert"),
            &[],
            ordered("x,y,z,context,expert,data"),
            all,
        ),
        ("experts-over = expert:", &[], of_experts("z=2,expert=4"), &[], over("z=2,expert=4", "z,expert"), all),
        ("experts-over = context:", &[], over("x=2,context=4", "context"), &[], over("context=4", "context"), &[]),
        ("expert=4: no experts are spread", &[], over("expert=4", "none"), &[], of_experts("expert=4"), all),
        ("expert=4: FSDP shards", &[], of_experts("expert=4"), &[], over("expert=4", "none"), &[Torchtitan]),
        ("expert=4 beside z=2:", &[], over("z=2,expert=4", "z,expert"), &[], over("z=2,data=4", "z"), megatrons),
        (
            "activations = replicated:",
            &[],
            replicated(of_experts("x=2,expert=4")),
            &[],
            of_experts("x=2,expert=4"),
            all,
        ),
        (
            "dispatch = duplicated:",
            &[],
            LayoutRequest { dispatch: Dispatch::Duplicated, ..replicated(of_experts("x=2,expert=4")) },
            &[],
            replicated(of_experts("x=2,expert=4")),
            megatrons,
        ),
        ("dispatch:", &[], of_experts("x=2,expert=4"), &[], over("x=2,expert=4", "x,expert"), &[Torchtitan]),
        ("y=2:", &[], over("x=2,y=2,expert=2", "x"), &[], over("x=2,expert=2", "x"), all),
        (
            "y=2 beside experts-over = x:",
            &[],
            over("x=2,y=2,expert=2", "x"),
            &[],
            over("x=2,y=2,expert=2", "none"),
            all,
        ),
        (
            "balance = batch:",
            &[("balance", "batch")],
            LayoutRequest { microbatch: Some(4), ..one.clone() },
            &[("balance", "batch"), ("balance_loss", "0")],
            LayoutRequest { microbatch: Some(4), ..one.clone() },
            &[Torchtitan],
        ),
        ("balance = sequence:", &[], one.clone(), &[("balance", "none")], one.clone(), &[Torchtitan]),
        ("router_z_loss = 0.001:", &[("router_z_loss", "0.001")], one.clone(), &[], one.clone(), &[Torchtitan]),
        (
            "capacity = 1.25 in groups of 32768:",
            &[("capacity", "1.25")],
            one.clone(),
            &[("capacity", "1.25")],
            single.clone(),
            megatrons,
        ),
        (
            "capacity = 1.25 in groups of 1024:",
            &[("capacity", "1.25"), ("capacity_group", "1024")],
            single.clone(),
            &[("capacity", "1.25")],
            single.clone(),
            megatrons,
        ),
        ("capacity = 1.25:", &[("capacity", "1.25")], single.clone(), &[], single.clone(), &[Torchtitan]),
        (
            "drop = choice:",
            &[("capacity", "1.25")],
            single.clone(),
            &[("capacity", "1.25"), ("experts_per_token", "1")],
            single.clone(),
            megatrons,
        ),
        (
            "balance = sequence: beside biases",
            &[("router", "sigmoid"), ("router_bias_rate", "0.001")],
            one.clone(),
            &[("router", "sigmoid"), ("router_bias_rate", "0.001"), ("balance", "none")],
            one.clone(),
            megatrons,
        ),
        (
            "balance = sequence: beside groups",
            &[("router_groups", "2"), ("router_top_groups", "1"), ("router", "sigmoid")],
            one.clone(),
            &[("router_groups", "2"), ("router_top_groups", "1"), ("router", "sigmoid"), ("balance", "none")],
            one.clone(),
            megatrons,
        ),
        (
            "balance = sequence: beside groups and biases",
            &[("router_groups", "2"), ("router_top_groups", "1"), ("router", "sigmoid"), ("router_bias_rate", "0.001")],
            one.clone(),
            &[("router_groups", "2"), ("router_top_groups", "1"), ("router", "sigmoid")],
            one.clone(),
            megatrons,
        ),
        (
            "router_bias_rate = 0.001:",
            &[("router", "sigmoid"), ("router_bias_rate", "0.001"), ("capacity", "1.25")],
            single.clone(),
            &[("router", "sigmoid"), ("router_bias_rate", "0.001")],
            single.clone(),
            megatrons,
        ),
        (
            "router_groups = 2:",
            &[("router_groups", "2"), ("router_top_groups", "1")],
            one.clone(),
            &[("router_groups", "2"), ("router_top_groups", "1"), ("router", "sigmoid")],
            one.clone(),
            megatrons,
        ),
        (
            "router_top_groups = 2 for 2 experts:",
            &[("router_groups", "4"), ("router_top_groups", "2")],
            one.clone(),
            &[("router_groups", "4"), ("router_top_groups", "1")],
            one.clone(),
            &[Torchtitan],
        ),
        ("experts in blocks ([0]+[1])*16:", &[("expert_every", "2")], one.clone(), &[], one.clone(), &[Torchtitan]),
        ("biases = true:", &[("biases", "true")], one.clone(), &[], one.clone(), megatrons),
        (
            "shared_ffn = 1000:",
            &[("shared_ffn", "1000")],
            one.clone(),
            &[("shared_ffn", "14336")],
            one.clone(),
            &[Torchtitan],
        ),
        ("model mixtral-8x7b:", &[], one.clone(), &[("name", "other")], one.clone(), &[Torchtitan]),
    ];
    for (word, fields, with, other_fields, without, lacking) in cases {
        let named = |framework, fields, request| {
            let gaps = of(framework, &model("mixtral-8x7b", fields), request).cannot_express;
            (gaps.iter().filter(|gap| gap.starts_with(word)).count(), gaps)
        };
        for framework in TOLD {
            let (count, gaps) = named(framework, fields, &with);
            assert_eq!(count, usize::from(lacking.contains(&framework)), "{word} in {framework}: {gaps:?}");
            let (count, gaps) = named(framework, other_fields, &without);
            assert_eq!(count, 0, "{word} in {framework} without: {gaps:?}");
        }
    }
}

/// Biases that follow loads are told as they are.
#[test]
fn biases_of_routers_are_told() {
    let text = |framework, rate: &str| {
        let fields = [("router", "sigmoid"), ("router_bias_rate", rate)];
        of(framework, &model("mixtral-8x7b", &fields), &request("expert=4", "expert", 4)).text
    };
    for (framework, with, without) in [
        (Framework::Megatron, "--moe-router-enable-expert-bias", "--moe-router-enable-expert-bias"),
        (Framework::Megatron, "--moe-router-bias-update-rate 0.002", "--moe-router-bias-update-rate"),
        (Framework::Nemo, "moe_router_enable_expert_bias: true", "moe_router_enable_expert_bias: true"),
        (Framework::Nemo, "moe_router_bias_update_rate: 0.002", "moe_router_bias_update_rate: 0.002"),
        (Framework::Torchtitan, "load_balance_coeff=0.002", "load_balance_coeff=0"),
    ] {
        assert!(text(framework, "0.002").contains(with), "{framework}: {with}");
        assert!(!text(framework, "0").contains(without), "{framework}: {without}");
    }
}

/// Qwen3 balances with a bias, whatever the model says.
#[test]
fn torchtitans_qwen3_has_its_own_balance_and_no_stages() {
    let gaps = |fields: &[(&str, &str)], grid: &str| {
        of(Framework::Torchtitan, &model("qwen3-30b-a3b", fields), &request(grid, "expert", 8)).cannot_express
    };
    let none = gaps(&[("balance", "none")], "expert=4");
    assert!(none.iter().any(|gap| gap.starts_with("router_bias_rate = 0: a bias")), "{none:?}");
    assert!(!none.iter().any(|gap| gap.starts_with("balance")), "{none:?}");
    let biased = gaps(&[("balance", "none"), ("router_bias_rate", "0.001")], "expert=4");
    assert!(
        !biased.iter().any(|gap| ["balance", "router_bias_rate"].iter().any(|it| gap.starts_with(it))),
        "{biased:?}"
    );
    let has_stages = |gaps: &[String]| gaps.iter().any(|gap| gap.starts_with("pipe=2: torchtitan's Qwen3"));
    assert!(!has_stages(&none) && has_stages(&gaps(&[], "expert=4,pipe=2")));
}

#[test]
fn layouts_of_experts_that_are_expressed_whole_say_so() {
    let quiet = Overlap { all_to_all: false, ..Overlap::ALL };
    for (preset, grid, over) in [
        ("mixtral-8x7b", "x=2,expert=4,data=2", "expert"),
        ("mixtral-8x7b", "x=2,context=2,expert=2,pipe=2", "context,expert"),
        ("qwen3-30b-a3b", "x=4,expert=8", "x,expert"),
        ("qwen3-30b-a3b", "x=2,context=2,expert=2,data=2", "x,context,expert"),
        ("qwen3-30b-a3b", "x=2,data=4", "none"),
        ("qwen3-30b-a3b", "z=8", "z"),
    ] {
        let request = LayoutRequest { overlap: quiet, microbatch: Some(8), ..request(grid, over, 64) };
        for framework in [Framework::Megatron, Framework::Nemo] {
            assert_eq!(
                of(framework, &model(preset, &[]), &request).cannot_express,
                [""; 0],
                "{preset} {grid} {framework}"
            );
        }
    }
}

#[test]
fn what_would_be_other_experts_is_refused() {
    let refusal = |framework, fields: &[(&str, &str)], request: &LayoutRequest| {
        try_of(framework, &model("mixtral-8x7b", fields), request).unwrap_err().to_string()
    };
    let plain = request("expert=4", "expert", 4);
    let cut = request("x=2,expert=4", "expert", 4);
    for framework in [Framework::Megatron, Framework::Nemo] {
        let sigmoid: &[_] = &[("router", "sigmoid"), ("router_normalize", "false")];
        let message = refusal(framework, sigmoid, &plain);
        assert!(message.starts_with("router_normalize = false: Megatron"), "{message}");
        let message = refusal(framework, &[("router_bias_rate", "0.001")], &plain);
        assert!(message.starts_with("router_bias_rate = 0.001: Megatron"), "{message}");
        let message = refusal(framework, &[("biases", "true")], &cut);
        assert!(
            message.starts_with("biases = true: Megatron") && message.ends_with("--experts-over with x"),
            "{message}"
        );
    }
    let single: &[_] = &[("router_groups", "8"), ("router_top_groups", "2")];
    let message = refusal(Framework::Torchtitan, single, &plain);
    let rule = "router_groups = 8: torchtitan's groups have at least two experts";
    assert_eq!(message, format!("{rule}; use at most 4, or none"));
    for framework in TOLD {
        let message = refusal(framework, &[("blocks.1.experts", "4")], &plain);
        assert!(message.starts_with("blocks = several kinds of experts:"), "{message}");
        let message = refusal(framework, &[("blocks.1.qk_norm", "rms")], &plain);
        assert!(message.starts_with("blocks = 2 kinds:"), "{message}");
        let message = refusal(framework, &[("qk_norm", "layer")], &plain);
        assert!(message.starts_with("qk_norm = layer:"), "{message}");
        let message = try_of(framework, &model("olmoe-1b-7b", &[]), &plain).unwrap_err().to_string();
        assert!(message.starts_with("qk_norm = rms-all:"), "{message}");
    }
    for framework in [Framework::DeepSpeed, Framework::Axonn] {
        let message = refusal(framework, &[], &plain);
        let rule = format!("experts = 8: not in exports to {}: ", framework.title());
        assert!(
            message.starts_with(&rule) && message.ends_with("; export to megatron, nemo or torchtitan"),
            "{message}"
        );
    }
}
