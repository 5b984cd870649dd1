//! What other frameworks do changes when things are kept and sent, not what is computed: their programs equal the serial model.

use proptest::prelude::*;
use quadrille_engine::EngineError;
use quadrille_proofs::{combined_cases, for_random, holds_by, llama, prove};
use quadrille_spec::{Activations, Axis, AxisSet, ElementType, Layout, LayoutRequest, Model, Recompute, Schedule};
use quadrille_step::{Formats, Operation, Practice, StepProgram, When};

/// Practices in f64, each of whose parts may be there or not.
fn practices() -> impl Strategy<Value = Practice> {
    let formats = Formats::of(ElementType::F64, ElementType::F64);
    let bytes = ElementType::F64.bytes();
    let over =
        prop::sample::select(vec![None, Some(AxisSet::WORLD), Some(Axis::Expert.only()), Some(Axis::Data.only())]);
    (any::<([bool; 7], [bool; 4])>(), over).prop_map(move |((does, keeps), sums_whole)| {
        let [masks, scores, norms, gates] = keeps.map(|keeps| if keeps { bytes } else { 0 });
        Practice {
            formats: Formats { masks, scores, scores_meanwhile: scores, norms, gates, ..formats },
            gathers_inputs_again: does[0],
            makes_scores_again: false,
            gates_apart: false,
            repeats_whole_segments: does[1],
            pads_shards: false,
            gathers_blocks: does[2],
            scatters_in_turn: does[3],
            reduces_under_backward: does[4],
            gathers_in_turn: does[5],
            gathers_under_forward: does[6],
            sums_whole,
            sparsity: None,
            imbalance: 1.0,
            reserves_expert_rows: true,
            counts_tokens: true,
            weighs_activations: false,
        }
    })
}

#[test]
fn layouts_by_any_practice_equal_the_serial_model() {
    for_random(100, (combined_cases(), practices()), |(case, practice)| holds_by(&case, practice, ElementType::F64));
}

fn program(change: impl Fn(&mut Practice)) -> StepProgram {
    let model = llama(2);
    let request = LayoutRequest {
        zero: "1".parse().unwrap(),
        microbatch: Some(2),
        ..LayoutRequest::new("x=2,z=2,data=2".parse().unwrap(), 8)
    };
    let layout = Layout::new(&model, &request).unwrap();
    let mut practice = Practice::of(&layout);
    change(&mut practice);
    StepProgram::with_practice(&model, &layout, practice).unwrap()
}

/// What a stage receives in shards is gathered first. A norm of it that is made again, for a weight gradient that is put off,
/// needs it at once.
#[test]
fn what_norms_are_made_of_again_is_gathered_before_them() {
    let model = Model::gpt(2, 12, 2, 7, 4);
    let request = LayoutRequest {
        schedule: Schedule::ZeroBubble,
        recompute: Recompute::Selective,
        activations: Activations::Replicated,
        dtype: ElementType::F64,
        ..LayoutRequest::new("x=2,y=2,pipe=2".parse().unwrap(), 2)
    };
    let layout = Layout::new(&model, &request).unwrap();
    let practice = Practice { gathers_inputs_again: true, ..Practice::of(&layout) };
    let report = prove(&StepProgram::with_practice(&model, &layout, practice).unwrap(), 2).unwrap();
    assert!(report.ok, "{report:?}");
}

/// An engine has numbers of one type only.
#[test]
fn numbers_that_the_engine_does_not_have_are_refused() {
    let program = program(|practice| practice.formats.values = 2);
    let error = prove(&program, 1).unwrap_err();
    assert!(matches!(error, EngineError::Job(_) | EngineError::Formats { .. }), "{error}");
    assert!(error.to_string().contains("stores numbers"), "{error}");
}

/// Nor products of a part of a matrix's columns.
#[test]
fn gates_that_are_apart_are_refused() {
    let program = program(|practice| practice.gates_apart = true);
    let error = prove(&program, 1).unwrap_err();
    assert!(error.to_string().contains("StepProgram::new"), "{error}");
}

/// Nor experts whose weights scale what they activate, or whose buffers grow with the rows that are routed.
#[test]
fn buffers_of_experts_that_other_frameworks_have_are_refused() {
    let changes: [fn(&mut Practice); 2] =
        [|practice| practice.weighs_activations = true, |practice| practice.reserves_expert_rows = false];
    for change in changes {
        let error = prove(&program(change), 1).unwrap_err();
        assert!(error.to_string().contains("StepProgram::new"), "{error}");
    }
}

/// A reduction that began a microbatch early would miss the last gradients.
#[test]
fn reductions_that_begin_too_early_are_seen() {
    let right = program(|practice| practice.reduces_under_backward = true);
    assert!(prove(&right, 2).unwrap().ok);
    let mut wrong = right;
    let mut moved = 0;
    for stage in &mut wrong.stages {
        for op in stage.chunks.iter_mut().flat_map(|chunk| &mut chunk.backward.ops) {
            if op.when == When::Last && matches!(op.operation, Operation::Issue(_)) {
                (op.when, moved) = (When::First, moved + 1);
            }
        }
    }
    assert!(moved > 0);
    assert!(!prove(&wrong, 2).is_ok_and(|report| report.ok));
}

/// Where weight gradients are put off, inputs that are gathered again for them alone are put off too.
#[test]
fn inputs_are_gathered_again_where_they_are_read() {
    for recompute in ["none", "selective", "full:1", "full:2"] {
        let model = llama(4);
        let request = LayoutRequest {
            schedule: Schedule::ZeroBubble,
            activations: Activations::Scattered,
            recompute: recompute.parse().unwrap(),
            microbatch: Some(2),
            dtype: ElementType::F64,
            ..LayoutRequest::new("x=2,y=2,pipe=2".parse().unwrap(), 4)
        };
        let layout = Layout::new(&model, &request).unwrap();
        let practice = Practice { gathers_inputs_again: true, ..Practice::of(&layout) };
        let report = prove(&StepProgram::with_practice(&model, &layout, practice).unwrap(), 2).unwrap();
        assert!(report.ok, "{recompute}: {:?}", report.failures);
    }
}
