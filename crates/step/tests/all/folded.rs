//! The stages of a folded program are those of the whole one.

use proptest::prelude::*;
use quadrille_spec::{Layout, LayoutRequest, Model};
use quadrille_step::{Layer, Practice, Section, StageProgram, StepProgram};

/// All but names and the numbers of layers.
fn nameless(mut stage: StageProgram) -> StageProgram {
    stage.values.iter_mut().for_each(|value| value.name.clear());
    for parameter in &mut stage.parameters {
        parameter.name.clear();
        forget(&mut parameter.layer);
    }
    let chunks = stage.chunks.iter_mut();
    let sections = chunks.flat_map(|chunk| [&mut chunk.forward, &mut chunk.backward, &mut chunk.weight_gradient]);
    sections.chain([&mut stage.update]).for_each(nameless_section);
    stage
}

fn nameless_section(section: &mut Section) {
    for op in &mut section.ops {
        forget(&mut op.layer);
        op.operation = op.operation.anywhere();
    }
    section.receives.iter_mut().chain(&mut section.sends).for_each(|message| forget(&mut message.layer));
}

fn forget(layer: &mut Layer) {
    if let Layer::Block(index) = layer {
        *index = 0;
    }
}

/// Model with blocks of two kinds, with or without experts.
fn model(layers: usize, every: usize, has_experts: bool) -> Model {
    let experts = if has_experts { "experts = 2\nexperts_per_token = 1\n" } else { "" };
    let text = format!(
        "name = \"m\"\nlayers = {layers}\nhidden = 8\nheads = 2\nvocab = 16\nseq_len = 8\ndropout = 0.1\n{experts}\
         [[blocks]]\nfrom = 0\nevery = {every}\nwindow = 4\nffn = 24\n"
    );
    Model::from_toml(&text, &[]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stages_of_a_kind_are_the_stages(
        [pipe, chunks, more, every] in [1_usize..6, 1_usize..4, 0_usize..5, 1_usize..4],
        (microbatches, schedule) in (1_usize..9, 0..5_usize),
        (recompute, zero, keep) in (0..4_usize, 0..3_usize, any::<bool>()),
        [eager, has_experts] in any::<[bool; 2]>(),
    ) {
        let model = model(pipe * chunks + more + 1, every, has_experts);
        let schedule = ["gpipe", "1f1b", "interleaved", "zb-h1", "message-driven"][schedule];
        let chunks = if schedule == "interleaved" { chunks } else { 1 };
        let request = LayoutRequest {
            schedule: schedule.parse().unwrap(),
            chunks,
            recompute: ["none", "selective", "full", "full:2"][recompute].parse().unwrap(),
            zero: ["0", "1", "2"][zero].parse().unwrap(),
            keep_weights: if keep { "step" } else { "use" }.parse().unwrap(),
            microbatch: Some(2),
            ..LayoutRequest::new(format!("x=2,z=2,data=2,pipe={pipe}").parse().unwrap(), 4 * microbatches)
        };
        let Ok(layout) = Layout::new(&model, &request) else { return Ok(()) };
        let practice = Practice { reduces_under_backward: eager, ..Practice::of(&layout) };
        let whole = StepProgram::with_practice(&model, &layout, practice).unwrap();
        let mut folded = StepProgram::folded(&model, &layout, practice).unwrap();
        prop_assert!(folded.kinds.len() <= whole.stages.len());
        prop_assert_eq!(folded.living(), whole.stages.iter().map(StageProgram::living).collect::<Vec<_>>());
        // Backwards too: every stage is made of whichever was asked for before.
        for stage in (0..whole.stages.len()).chain((0..whole.stages.len()).rev()) {
            prop_assert_eq!(nameless(folded.unfolded(stage).clone()), nameless(whole.stages[stage].clone()));
        }
    }
}

#[test]
fn stages_with_equal_blocks_are_one_kind() {
    let model = model(12, 1, false);
    let request = LayoutRequest {
        schedule: "interleaved".parse().unwrap(),
        chunks: 2,
        ..LayoutRequest::new("pipe=6".parse().unwrap(), 12)
    };
    let layout = Layout::new(&model, &request).unwrap();
    let folded = StepProgram::folded(&model, &layout, Practice::of(&layout)).unwrap();
    assert_eq!(folded.kinds.len(), 3, "the first stage, the last, and all others");
}
