//! Recomputation changes no bit, and what would change one is found.

use proptest::prelude::*;
use quadrille_proofs::{
    Place, assert_caught, bits, combined_cases, edited_at, for_random, is_collective, model, pass_operations,
    program_with, prove, recomputed,
};
use quadrille_spec::CollectiveKind::AllGather;
use quadrille_spec::{Activations, Axis, Model, Recompute};
use quadrille_step::{DropoutSite, GemmPass, Layer, Op, Operation, StepProgram, kind};

const FULL: Recompute = Recompute::Full { every: 1 };
const PAIRS: Recompute = Recompute::Full { every: 2 };
const BOTH: [Activations; 2] = [Activations::Replicated, Activations::Scattered];

/// Four blocks with dropout: what is computed again must drop the same elements.
fn kept(grid: &str, activations: Activations) -> StepProgram {
    let model = Model { dropout: 0.1, ..model(4) };
    program_with(&model, grid, 8, |request| {
        (request.activations, request.microbatch) = (activations, Some(4));
    })
}

#[test]
fn nothing_that_is_computed_again_changes_a_bit() {
    let grids = ["x=2", "y=2", "z=2", "x=2,y=2,z=2", "x=2,context=2", "x=2,pipe=2", "z=2,pipe=2,data=2"];
    for (grid, activations) in grids.iter().flat_map(|grid| [(grid, BOTH[0]), (grid, BOTH[1])]) {
        let plain = kept(grid, activations);
        let reference = bits(&plain);
        for (recompute, cac) in [Recompute::Selective, FULL, PAIRS].into_iter().flat_map(|r| [(r, false), (r, true)]) {
            let again = recomputed(&plain, recompute, cac);
            assert!(bits(&again) == reference, "{grid}, {activations}, {recompute}, CAC {cac}");
        }
    }
}

/// With every schedule, linear algorithm and overlap.
#[test]
fn nothing_changes_in_random_layouts() {
    for_random(15, combined_cases(), |case| {
        let program = case.program(case.layout.dtype);
        let plain = bits(&recomputed(&program, Recompute::None, false));
        for cac in [false, true] {
            let recompute = if program.layout.recompute == Recompute::None { FULL } else { program.layout.recompute };
            prop_assert!(bits(&recomputed(&program, recompute, cac)) == plain, "{}, CAC {}", recompute, cac);
        }
        Ok(())
    });
}

/// What is predicted of repetitions is also counted.
#[test]
fn what_is_repeated_is_counted() {
    for (recompute, cac) in [(FULL, false), (PAIRS, false), (FULL, true), (Recompute::Selective, false)] {
        let report = prove(&recomputed(&kept("x=2,y=2,z=2", BOTH[1]), recompute, cac), 1).unwrap();
        assert!(report.ok && report.ledger_equal, "{recompute}: {report:?}");
    }
}

/// The operations of the backward pass that are repetitions of the forward pass.
fn repetitions(program: &StepProgram) -> Vec<(Place, &Op)> {
    let forward = |op: &Op| {
        matches!(
            op.operation,
            Operation::Norm(_)
                | Operation::Bias(_)
                | Operation::BiasActivation(_)
                | Operation::Attention(_)
                | Operation::Residual(_)
                | Operation::Gemm(kind::Gemm { pass: GemmPass::Forward, .. })
        )
    };
    let mut found = pass_operations(program);
    found.retain(|(place, op)| place.list == 1 && forward(op));
    found
}

/// Adds a bias to the kept input of every block just before it is read again.
#[test]
fn a_changed_input_is_found() {
    let program = recomputed(&kept("x=2,y=2", BOTH[1]), FULL, false);
    assert!(prove(&program, 1).unwrap().ok);
    let stage = &program.stages[0];
    let bias = stage.parameters.iter().find(|each| each.name == "block.0.projection.bias").unwrap().value;
    for block in 0..4 {
        let reads =
            |(_, op): &(Place, &Op)| op.layer == Layer::Block(block) && matches!(op.operation, Operation::RowSums(_));
        let mut backward = pass_operations(&program).into_iter().filter(|(place, _)| place.list == 1);
        let (place, op) = backward.find(|each| reads(each)).unwrap();
        let Operation::RowSums(kind::RowSums { input, .. }) = op.operation else { unreachable!("found as one") };
        let changed = Op { operation: Operation::Bias(kind::Bias { bias, input, output: input }), ..*op };
        let broken = edited_at(&program, place, |ops, at| ops.insert(at, changed));
        assert_caught(&broken, 1, &format!("the input of block {block} has changed"));
    }
}

/// Other elements are dropped the second time; what works in place is repeated twice.
#[test]
fn a_repetition_that_differs_is_found() {
    for grid in ["x=2,y=2", "z=2"] {
        let program = recomputed(&kept(grid, BOTH[0]), FULL, false);
        let mut changed = 0;
        for (place, op) in repetitions(&program) {
            let Some(broken) = repeated_otherwise(&program, place, op) else { continue };
            assert_caught(&broken, 1, &format!("{grid}: another {} at {place:?}", op.operation.name()));
            changed += 1;
        }
        // Of each of four blocks: qkv's bias, attention, and one of two residuals.
        assert_eq!(changed, 4 * 3, "{grid}");
    }
}

/// The program with another dropout, or a bias added twice, in the repetition at `place`.
fn repeated_otherwise(program: &StepProgram, place: Place, op: &Op) -> Option<StepProgram> {
    match op.operation {
        Operation::Attention(_) | Operation::Residual(_) => Some(edited_at(program, place, |ops, at| {
            if let Operation::Attention(kind::Attention { dropout, .. })
            | Operation::Residual(kind::Residual { dropout, .. }) = &mut ops[at].operation
            {
                *dropout = Some(DropoutSite::Embedding);
            }
        })),
        Operation::Bias(_) => Some(edited_at(program, place, |ops, at| ops.insert(at, *op))),
        _ => None,
    }
}

/// A gather that is repeated over another axis.
#[test]
fn a_repeated_collective_over_another_axis_is_found() {
    let program = recomputed(&kept("x=2,y=2", BOTH[1]), FULL, false);
    let stage = &program.stages[0];
    let first_gradient = stage.chunks[0].backward.ops.iter().position(|op| op.layer == Layer::Block(3)).unwrap();
    let issued = |(place, op): &(Place, &Op)| {
        place.list == 1
            && place.index > first_gradient
            && matches!(op.operation, Operation::Issue(c) if c.kind == AllGather)
    };
    let gathers: Vec<_> = pass_operations(&program).into_iter().filter(issued).collect();
    let swapped = |axes| if axes == Axis::X.only() { Axis::Y.only() } else { Axis::X.only() };
    assert!(gathers.len() > 30, "{}", gathers.len());
    for (place, op) in gathers.iter().step_by(3) {
        let gather = is_collective(op).unwrap();
        let broken = edited_at(&program, *place, |ops, _| {
            for op in ops {
                if let Operation::Issue(collective) | Operation::Wait(collective) = &mut op.operation
                    && *collective == gather
                {
                    collective.axes = swapped(collective.axes);
                }
            }
        });
        assert_caught(&broken, 1, &format!("the gather at {place:?} goes over another axis"));
    }
}
