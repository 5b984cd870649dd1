//! Rules of the frameworks that train: exports, prices and searches give the same answer.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use quadrille_cost::native::{self, Candidate, Moments, NarrowFormat, Numbers};
use quadrille_plan::export::{Framework, export};
use quadrille_plan::native::{PlanRequest, Question, Reserve};
use quadrille_spec::{
    Axis, AxisOrder, Blocks, Cluster, ElementType, Grid, Layout, LayoutRequest, Model, Schedule, Zero,
};

use crate::export::{TARGET, try_of};
use crate::found::found;

fn request(grid: &str, batch: usize, microbatch: usize) -> LayoutRequest {
    LayoutRequest { microbatch: Some(microbatch), ..LayoutRequest::new(grid.parse().unwrap(), batch) }
}

/// Layouts that keep all rules of layouts, with the frameworks that do not start them and the words of the message.
#[test]
fn layouts_that_do_not_start_are_refused() {
    use Framework::{Axonn, DeepSpeed, Megatron, Nemo, Torchtitan};
    let groups = LayoutRequest { chunks: 2, microbatch_group: Some(5), ..request("pipe=2", 5, 1) };
    let interleaved = LayoutRequest { schedule: Schedule::Interleaved, ..groups };
    let odd = LayoutRequest { seq_len: Some(1023), ..request("data=2", 4, 1) };
    let cases: [(&str, LayoutRequest, &[Framework], &str); 7] = [
        // Eight heads of keys and values.
        (
            "llama3-8b",
            request("x=16", 4, 4),
            &[Torchtitan, DeepSpeed],
            "heads of keys and values, of which there are 8",
        ),
        ("qwen3-30b-a3b", request("x=8", 4, 4), &[Torchtitan], "x = 8: torchtitan gives each of these ranks"),
        ("llama3-8b", request("context=16", 4, 4), &[DeepSpeed], "context = 16: DeepSpeed gives each of these ranks"),
        ("llama3-8b", request("x=2,context=8", 4, 4), &[DeepSpeed], "context*x*y = 16: DeepSpeed"),
        // One microbatch of four sequences on four stages.
        ("llama3-8b", request("z=2,pipe=4", 4, 4), &[Torchtitan], "microbatch = 4: torch's 1f1b has at least pipe=4"),
        ("llama3-8b", interleaved, &[Torchtitan], "torch runs 5 microbatches in 2 rounds"),
        ("llama3-8b", odd, &[Torchtitan], "seq_len = 1023: torchtitan cuts sequences into 2 equal parts"),
    ];
    for (name, request, refused, words) in cases {
        let model = Model::preset(name).unwrap();
        for framework in [Megatron, Nemo, Torchtitan, DeepSpeed, Axonn] {
            let has_experts = model.has_experts() && [DeepSpeed, Axonn].contains(&framework);
            if has_experts || framework == Axonn && request.grid.size(Axis::Context) > 1 {
                continue;
            }
            match try_of(framework, &model, &request) {
                Ok(_) => assert!(!refused.contains(&framework), "{framework} starts {} of {name}", request.grid),
                Err(error) => {
                    assert!(refused.contains(&framework), "{framework}: {error}");
                    assert!(error.to_string().contains(words), "{framework}: {error}");
                }
            }
        }
    }
    // What a message advises starts.
    let model = Model::preset("llama3-8b").unwrap();
    assert!(try_of(Torchtitan, &model, &request("x=8", 4, 4)).is_ok());
    assert!(try_of(Torchtitan, &model, &request("z=2,pipe=2", 4, 2)).is_ok());
}

fn small(kv_heads: usize, mixture: bool) -> Model {
    let kv_heads = kv_heads.to_string();
    let fields =
        [("layers", "8"), ("hidden", "64"), ("heads", "8"), ("kv_heads", &kv_heads), ("ffn", "64"), ("seq_len", "64")];
    let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let preset = if mixture { "mixtral-8x7b" } else { "llama2-7b" };
    Model::from_toml(Model::preset_text(preset).unwrap(), &fields).unwrap()
}

fn question(model: &Model, cluster: &Cluster, framework: native::Framework) -> PlanRequest {
    let open = of(model, cluster, 8, framework);
    PlanRequest { top: Some(1000), variants: true, memory_reserve: Some(Reserve::Bytes(0)), ..open }
}

/// A request for a framework in its own types or others.
fn of(model: &Model, cluster: &Cluster, devices: usize, framework: native::Framework) -> PlanRequest {
    let request = PlanRequest {
        framework: Some(framework.name.to_owned()),
        products: framework.numbers.products,
        moments: framework.numbers.moments,
        ..PlanRequest::new(model, cluster, devices, 8)
    };
    match framework.numbers.gradients {
        Some(gradients) => request.with("gradients", &gradients.to_string()).unwrap(),
        None => request,
    }
}

/// Every layout that a search finds is one that the framework starts, with ranks in an order that it has.
#[test]
fn searches_find_layouts_that_frameworks_start() {
    let cluster = Cluster::preset("selene").unwrap();
    let narrow = Numbers { moments: Some(Moments::Bf16), ..Numbers::default() };
    for (framework, to) in [
        (native::Framework::MEGATRON, Framework::Megatron),
        (native::Framework::MEGATRON.in_formats(narrow), Framework::Nemo),
        (native::Framework::FSDP, Framework::Torchtitan),
    ] {
        for mixture in [false, true] {
            let model = small(2, mixture);
            let request = question(&model, &cluster, framework);
            let layouts = found(&request.with("per_node", "4").unwrap()).unwrap();
            assert!(layouts.len() > 100, "{to}: {}", layouts.len());
            for (layout, _) in &layouts {
                let exported = export(to, &model, layout, &TARGET).unwrap_or_else(|error| panic!("{error}"));
                let gaps = exported.cannot_express;
                let others = gaps.iter().find(|gap| gap.starts_with("order = ") || gap.starts_with("experts-over = "));
                assert_eq!(others, None, "{} in {}", layout.grid, layout.grid.order());
                let moments = framework.numbers.moments;
                assert_eq!(to.check_moments(moments, layout), Ok(()), "zero = {} on {}", layout.zero, layout.grid);
            }
        }
    }
}

/// Shards of weights and experts fill a node of four together, experts inside, as FSDP numbers ranks.
#[test]
fn searches_place_ranks_as_the_framework_does() {
    let model = small(4, true);
    let cluster = Cluster::preset("perlmutter").unwrap();
    let mut request = question(&model, &cluster, native::Framework::FSDP);
    for (axis, size) in [("z", "2"), ("expert", "2"), ("data", "2"), ("x", "1")] {
        request.fix.push(axis, size);
    }
    let (layout, _) = &found(&request).unwrap()[0];
    let usual = LayoutRequest {
        per_node: Some(4),
        ..LayoutRequest::new(layout.grid.with_order(AxisOrder::usual_of("fsdp")), 8)
    };
    let usual = Candidate::of(&Layout::new(&model, &usual).unwrap(), &cluster);
    assert_eq!(usual.inside, [1, 1, 2, 1, 2, 1, 1]);
    assert_eq!(Candidate::of(layout, &cluster).inside, usual.inside, "{} in {}", layout.grid, layout.grid.order());
}

/// Blocks may have unequal numbers of heads; every one of them is cut.
#[test]
fn rules_of_heads_hold_in_every_block() {
    let fields = [("layers", "2"), ("hidden", "96"), ("heads", "24"), ("kv_heads", "8"), ("ffn", "96")];
    let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut model = Model::from_toml(Model::preset_text("llama2-7b").unwrap(), &fields).unwrap();
    let layout = |model: &Model| Layout::new(model, &request("x=8", 8, 8));
    let even = layout(&model).unwrap();
    assert_eq!(Framework::Torchtitan.check(&model, &even), Ok(()));
    let mut other = *model.blocks.first();
    other.attention.kv_heads = 12;
    model.blocks = Blocks::new(*model.blocks.first(), [other]);
    for framework in [Framework::Torchtitan, Framework::Megatron] {
        let message = framework.check(&model, &even).unwrap_err().to_string();
        assert!(message.contains("of which there are 12"), "{message}");
    }
}

/// Types of numbers that a framework lacks are refused before anything is priced, and beside f16 those that go with bf16.
#[test]
fn types_that_a_framework_lacks_are_refused() {
    let model = small(2, false);
    let numbers = |products, gradients, moments| Numbers { products, gradients, moments };
    let bf16 = Some(ElementType::Bf16);
    for (framework, cluster, numbers, words) in [
        (
            native::Framework::FSDP,
            "dgx-b200",
            numbers(Some(NarrowFormat::Nvfp4), None, None),
            "products = nvfp4: not in torchtitan",
        ),
        (native::Framework::FSDP, "dgx-h100", numbers(None, bf16, None), "gradients = bf16: not in torchtitan"),
        (
            native::Framework::FSDP,
            "dgx-h100",
            numbers(None, None, Some(Moments::Fp8)),
            "moments = fp8: not in torchtitan",
        ),
        (
            native::Framework::MEGATRON,
            "summit",
            numbers(None, bf16, None),
            "beside weights and activations in bf16, not in f16",
        ),
    ] {
        let cluster = Cluster::preset(cluster).unwrap();
        let request = of(&model, &cluster, 4, framework.on(&cluster).in_formats(numbers));
        let message = found(&request).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
        assert!(found(&PlanRequest { any_layout: true, ..request }).is_ok(), "{words}");
    }
}

/// A choice that a framework lacks is priced as it is, and named by prices and exports.
#[test]
fn choices_that_a_framework_lacks_are_named() {
    let model = small(2, false);
    let cluster = Cluster::preset("selene").unwrap();
    let zero_bubble = LayoutRequest { schedule: Schedule::ZeroBubble, ..request("pipe=2,data=2", 8, 1) };
    let layout = Layout::new(&model, &zero_bubble).unwrap();
    let question =
        |framework| Question::of(model.clone(), cluster.clone(), framework, &layout, Reserve::Bytes(0)).unwrap();
    assert_eq!(question(native::Framework::MEGATRON).differences(&layout), ["schedule = zb-h1: 1f1b runs"]);
    assert_eq!(question(native::Framework::QUADRILLE).differences(&layout), Vec::<String>::new());
    let exported = export(Framework::Megatron, &model, &layout, &TARGET).unwrap().cannot_express;
    assert!(
        exported.iter().any(|gap| gap.starts_with("schedule = zb-h1") && gap.ends_with("1f1b runs")),
        "{exported:?}"
    );
}

/// A search that is made to break a rule names it, with the framework.
#[test]
fn searches_name_the_rule_of_a_framework() {
    let model = small(2, false);
    let cluster = Cluster::preset("selene").unwrap();
    let mut request = question(&model, &cluster, native::Framework::FSDP);
    request.fix.push("x", "8");
    let message = found(&request).unwrap_err().to_string();
    assert!(message.contains("x = 8: torchtitan gives each of these ranks"), "{message}");
    // Shards of weights, which a microbatch of one sequence is too small for, are not to blame.
    let mut sharded = PlanRequest { gpus: vec![16], ..request.clone() }.with("global_batch", "64").unwrap();
    sharded.fix.push("z", "2");
    let message = found(&sharded).unwrap_err().to_string();
    assert!(message.contains("x = 8: torchtitan gives each of these ranks"), "{message}");
    assert!(found(&PlanRequest { any_layout: true, ..request }).is_ok());
}

proptest! {
    /// What is priced is what is exported, for the framework that the price is of.
    #[test]
    fn prices_and_exports_give_the_same_answer(
        ranks in select(vec![2_usize, 4, 8]), pick in any::<Index>(), kv_heads in select(vec![1_usize, 2, 4, 8]),
        mixture in any::<bool>(), microbatch in select(vec![2_usize, 4]), batch in select(vec![8_usize, 16, 24]),
        schedule in select(Schedule::ALL.map(|(_, schedule)| schedule).to_vec()), narrow in any::<bool>(),
        zero in select(Zero::ALL.map(|(_, zero)| zero).to_vec()), seq_len in select(vec![8_usize, 24, 64]),
        (priced, to) in select(vec![
            (native::Framework::MEGATRON, Framework::Megatron), (native::Framework::FSDP, Framework::Torchtitan),
        ]),
    ) {
        let model = small(kv_heads, mixture);
        let grids = Grid::all_over(ranks, Axis::ALL.into_iter().collect());
        let grid = grids[pick.index(grids.len())];
        let request = LayoutRequest {
            microbatch: Some(microbatch), schedule, zero, seq_len: Some(seq_len), ..LayoutRequest::new(grid, batch)
        };
        let Ok(layout) = Layout::new(&model, &request) else { return Ok(()) };
        let moments = (narrow && to == Framework::Megatron).then_some(Moments::Bf16);
        let numbers = Numbers { moments, ..Numbers::default() };
        let cluster = Cluster::preset("selene").unwrap();
        let question =
            Question::of(model.clone(), cluster, priced.in_formats(numbers), &layout, Reserve::Bytes(0)).unwrap();
        let exported = export(to, &model, &layout, &quadrille_plan::export::Target { numbers, ..TARGET });
        match (question.check_runs(&layout), exported) {
            (Ok(()), exported) => prop_assert!(
                exported.is_ok() || layout.grid.size(Axis::Y) > 1, "{:?} on {}", exported, layout.grid
            ),
            (Err(_), exported) => prop_assert!(exported.is_err(), "{}", layout.grid),
        }
    }
}
