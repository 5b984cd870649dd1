//! What refusals of layouts suggest: each change, applied, is a layout that is not refused for the same again.

use proptest::prelude::*;
use quadrille_spec::{
    Activations, Axis, AxisOrder, BalanceScope, Capacity, DropOrder, Experts, FeedForward, Grid, Layout, LayoutRequest,
    Linear, Model, Perceptron, Recompute, Refusal, Router, RouterScores, Schedule, SpecError,
};

fn refusal(model: &Model, request: &LayoutRequest) -> Option<Box<Refusal>> {
    match Layout::new(model, request) {
        Ok(_) => None,
        Err(SpecError::Refused(refusal)) => Some(refusal),
        Err(other) => panic!("{other}"),
    }
}

/// Every suggested change is made; what stands in the way then is what was said.
fn check_remedies(model: &Model, request: &LayoutRequest) -> Result<(), TestCaseError> {
    let Some(refused) = refusal(model, request) else { return Ok(()) };
    let text = refused.to_string();
    for remedy in &refused.remedies {
        let changed = remedy.change.apply(request).unwrap();
        let again = refusal(model, &changed).map(|again| again.field);
        prop_assert_eq!(again, remedy.then, "{}", text);
        prop_assert_ne!(again, Some(refused.field), "{}", text);
    }
    // One that is not legal yet stands alone.
    prop_assert!(
        refused.remedies.len() <= 1 || refused.remedies.iter().all(|remedy| remedy.then.is_none()),
        "{}",
        text
    );
    Ok(())
}

fn grids() -> impl Strategy<Value = Grid> {
    let sizes = prop::array::uniform7(prop::sample::select(vec![1_usize, 1, 1, 2, 3, 4, 5, 8]));
    sizes.prop_map(|sizes| Grid::of_sizes(sizes).unwrap().with_order(AxisOrder::default()))
}

prop_compose! {
    fn models()(
        layers in 1_usize..9, heads in 1_usize..9, head in 1_usize..4, keys in 1_usize..9, ffn in 1_usize..40,
        vocab in 2_usize..40, seq_len in 1_usize..40,
    ) -> Model {
        let kv_heads = if heads % keys == 0 { keys } else { heads };
        Model::gpt(layers, heads * head * 2, heads, vocab, seq_len).reshaped(|m| { m.kv_heads = kv_heads; m.ffn = ffn; })
    }
}

prop_compose! {
    /// As [`models`], with experts in every block.
    fn mixtures()(
        model in models(), count in 2_usize..5, width in 1_usize..40, shared in prop::option::of(1_usize..40),
        group in prop::option::of(1_usize..40), drops in any::<bool>(), batch in prop::bool::weighted(0.3),
    ) -> Model {
        let group = group.filter(|group| model.seq_len.is_multiple_of(*group));
        let experts = |perceptron: Perceptron| Experts {
            count,
            per_token: 1,
            expert: Perceptron { width, ..perceptron },
            shared: shared.map(|width| Perceptron { width, ..perceptron }),
            router: Router {
                scores: RouterScores::Softmax,
                groups: None,
                normalize: false,
                scale: 1.0,
                balance: if batch { BalanceScope::Batch } else { BalanceScope::Sequence },
                balance_loss: 0.01,
                z_loss: 0.0,
                bias_rate: 0.0,
            },
            capacity: drops.then_some(Capacity { factor: 1.0, group, drop: DropOrder::Choice }),
        };
        let blocks = model.blocks.each(|block| {
            block.feed_forward = FeedForward::Experts(experts(*block.feed_forward.dense().unwrap()));
        });
        Model { blocks, ..model }
    }
}

prop_compose! {
    fn switches()(
        schedule in prop::sample::select(Schedule::ALL.map(|(_, schedule)| schedule).to_vec()),
        scattered in any::<bool>(), summa in prop::bool::weighted(0.2),
        recompute in prop::sample::select(vec![Recompute::None, Recompute::Selective, Recompute::Full { every: 3 }]),
        cac in prop::bool::weighted(0.2),
    ) -> (Schedule, Activations, Linear, Recompute, bool) {
        let activations = if scattered { Activations::Scattered } else { Activations::Replicated };
        (schedule, activations, if summa { Linear::Summa } else { Linear::Pmm }, recompute, cac)
    }
}

/// Often nothing, else a small number.
fn maybe(most: usize) -> impl Strategy<Value = Option<usize>> {
    prop::option::weighted(0.3, 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn remedies_of_refused_layouts_are_tried(
        model in prop_oneof![models(), mixtures()], grid in grids(), switches in switches(), global_batch in 0_usize..60, chunks in 0_usize..4,
        overlap_chunks in prop::sample::select(vec![1_usize, 1, 1, 1, 0, 2, 3]), per_node in maybe(9), seq_len in maybe(44),
        microbatch in maybe(13), summa_panels in maybe(13), microbatch_group in maybe(9),
        stage_blocks in prop::option::weighted(0.2, prop::collection::vec(0_usize..4, 1..6)),
    ) {
        let (schedule, activations, linear, recompute, keep_communicated) = switches;
        let request = LayoutRequest {
            schedule, activations, linear, recompute, keep_communicated, chunks, overlap_chunks, per_node, seq_len,
            microbatch, summa_panels, microbatch_group, stage_blocks,
            ..LayoutRequest::new(grid, global_batch)
        };
        check_remedies(&model, &request)?;
    }

    /// One fault in a layout that is legal else: then there is a remedy, and it is legal altogether.
    #[test]
    fn one_fault_has_a_legal_remedy(
        model in models(), axis in prop::sample::select(Axis::ALL.to_vec()), size in 2_usize..9, times in 1_usize..5,
    ) {
        let grid = Grid::new(1, 1, 1, 1).unwrap().with(axis, size).unwrap();
        let request = LayoutRequest::new(grid, size * times);
        check_remedies(&model, &request)?;
        if let Some(refused) = refusal(&model, &request) {
            prop_assert!(refused.remedies.iter().any(|remedy| remedy.then.is_none()), "{}", refused);
        }
    }
}

/// The model has 7 positions: a longer sequence than that is no remedy.
#[test]
fn a_sequence_is_not_made_longer_than_the_model() {
    let model = Model::gpt(2, 12, 6, 17, 7);
    let message = Layout::new(&model, &LayoutRequest::new("context=3".parse().unwrap(), 3)).unwrap_err().to_string();
    assert!(message.starts_with("seq-len = 7: context=3 cuts a sequence into 6 equal pieces"), "{message}");
    assert!(message.ends_with("; try `layout.seq_len` 6"), "{message}");
}

/// What else would be refused is named.
#[test]
fn a_second_fault_is_named() {
    let model = Model::gpt(2, 12, 6, 17, 6);
    let request = LayoutRequest { stage_blocks: Some(vec![5]), ..LayoutRequest::new("x=5,pipe=4".parse().unwrap(), 8) };
    let message = Layout::new(&model, &request).unwrap_err().to_string();
    assert_eq!(message, "x=5 does not divide heads = 6; try x=3 (then stage-blocks is in the way)");
}

/// Numbers as large as can be typed are refused, not multiplied.
#[test]
fn huge_sizes_are_refused() {
    let model = Model::gpt(2, 12, 6, 17, 6);
    let huge = Some(usize::MAX);
    let request = LayoutRequest::new("z=2,data=2".parse().unwrap(), 8);
    for request in [
        LayoutRequest { microbatch: huge, ..request.clone() },
        LayoutRequest { per_node: huge, global_batch: usize::MAX, ..request.clone() },
        LayoutRequest { seq_len: huge, ..request.clone() },
        LayoutRequest { chunks: usize::MAX, ..request.clone() },
        LayoutRequest { overlap_chunks: usize::MAX, ..request.clone() },
        LayoutRequest { recompute: Recompute::Full { every: usize::MAX }, ..request.clone() },
        LayoutRequest { linear: Linear::Summa, summa_panels: huge, ..request.clone() },
        LayoutRequest { schedule: Schedule::Interleaved, microbatch_group: huge, ..request.clone() },
    ] {
        let refused = refusal(&model, &request).unwrap();
        assert!(refused.remedies.iter().any(|remedy| remedy.then.is_none()), "{refused}");
        check_remedies(&model, &request).unwrap();
    }
}
