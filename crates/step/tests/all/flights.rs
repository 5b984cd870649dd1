//! Collectives are waited for after they were issued, whatever the practice.

use proptest::prelude::*;
use quadrille_spec::{Layout, LayoutRequest, Model};
use quadrille_step::{Operation, Practice, StageProgram, StepProgram};

/// The first operation that waits for a collective that is not under way.
fn early_wait(stage: &StageProgram) -> Option<String> {
    let mut under_way = Vec::new();
    let sections = stage.chunks.iter().flat_map(|chunk| chunk.sections()).chain([&stage.update]);
    for op in sections.flat_map(|section| &section.ops) {
        let storage = |output| stage.value(output).storage;
        match op.operation {
            Operation::Issue(collective) => under_way.push(storage(collective.output)),
            Operation::Wait(collective) => {
                match under_way.iter().position(|other| *other == storage(collective.output)) {
                    Some(at) => drop(under_way.remove(at)),
                    None => return Some(format!("{} of {}", op.operation.name(), op.layer)),
                }
            }
            _ => {}
        }
    }
    None
}

fn request(grid: &str, linear: usize, recompute: usize, overlap: usize, chunks: usize) -> LayoutRequest {
    LayoutRequest {
        linear: ["pmm", "summa"][linear].parse().unwrap(),
        recompute: ["none", "selective", "full", "full:2"][recompute].parse().unwrap(),
        overlap: ["all", "none", "oar", "ors,oag"][overlap].parse().unwrap(),
        overlap_chunks: chunks,
        seq_len: Some(8),
        ..LayoutRequest::new(grid.parse().unwrap(), 32)
    }
}

fn check(request: &LayoutRequest, flags: [bool; 5]) -> Result<(), TestCaseError> {
    let model = Model::gpt(4, 8, 2, 16, 8).reshaped(|m| m.dropout = 0.1);
    let Ok(layout) = Layout::new(&model, request) else { return Ok(()) };
    let [gathers_blocks, gathers_inputs_again, repeats_whole_segments, scatters_in_turn, reduces_under_backward] =
        flags;
    let practice = Practice {
        gathers_blocks,
        gathers_inputs_again,
        repeats_whole_segments,
        scatters_in_turn,
        reduces_under_backward,
        ..Practice::of(&layout)
    };
    let program = StepProgram::with_practice(&model, &layout, practice).unwrap();
    for stage in &program.stages {
        prop_assert_eq!(early_wait(stage), None, "{:?}", layout);
    }
    Ok(())
}

#[test]
fn a_gather_whose_wait_lies_behind_another_layer_is_waited_for_once() {
    check(&request("y=2,z=2", 1, 3, 2, 2), [true, false, true, false, false]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_waited_for_that_is_not_under_way(
        grid in prop::sample::select(vec!["y=2,z=2", "x=2,z=2", "z=4", "x=2,y=2,z=2", "z=2,context=2", "z=2,data=2,pipe=2"]),
        [linear, recompute, overlap, chunks] in [0..2_usize, 0..4, 0..4, 1..3],
        flags in any::<[bool; 5]>(),
    ) {
        check(&request(grid, linear, recompute, overlap, chunks), flags)?;
    }
}
