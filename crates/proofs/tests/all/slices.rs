//! The transitions from replicated to sharded. No layer needs one today, so a program is given some: what a gather has
//! put together is sliced again and gathered from the slice, which must change nothing.

use quadrille_proofs::{edited, is_collective, model, pass_operations, program, prove};
use quadrille_spec::{Activations, Axis, CollectiveKind, Overlap};
use quadrille_step::{Op, Operation, StageProgram, StepProgram, StorageId, Value, ValueId, kind};

/// A value like `of` in a storage of its own.
fn another(stage: &mut StageProgram, of: ValueId) -> ValueId {
    let storage = StorageId(stage.storages.len());
    let like: &Value = &stage.values[of.0];
    stage.storages.push(stage.storages[like.storage.0].clone());
    let value = Value { name: format!("{} sliced", like.name), storage, ..like.clone() };
    stage.values.push(value);
    ValueId(stage.values.len() - 1)
}

/// `program` in which the first gather over `axis` of activations is done once more from a slice of its result: this
/// rank's part if it is cut over the same axis.
fn gathered_again(mut program: StepProgram, axis: Axis, cut: Axis) -> StepProgram {
    let stage = &mut program.stages[0];
    let ops = &stage.chunks[0].forward.ops;
    let wait = ops.iter().position(|op| {
        matches!(op.operation, Operation::Wait(_))
            && is_collective(op)
                .is_some_and(|gather| gather.kind == CollectiveKind::AllGather && gather.axes == axis.only())
    });
    let wait = wait.expect("scattered activations are gathered over x and y");
    let like = ops[wait];
    let gather = is_collective(&like).expect("found as one");
    // Columns are gathered in blocks and unpacked after.
    let unpack = match ops[wait + 1].operation {
        Operation::Unpack(kind::Unpack { output, .. }) => Some(output),
        _ => None,
    };
    let sliced = another(stage, gather.input);
    let again = quadrille_step::Collective { input: sliced, ..gather };
    let slice = match unpack {
        Some(input) => Operation::SliceColumns(kind::SliceColumns { axis: cut, input, output: sliced }),
        None => Operation::SliceRows(kind::SliceRows { axis: cut, input: gather.output, output: sliced }),
    };
    let mut added = vec![slice, Operation::Issue(again), Operation::Wait(again)];
    added.extend(unpack.map(|output| Operation::Unpack(kind::Unpack { axis, input: gather.output, output })));
    let at = wait + 1 + usize::from(unpack.is_some());
    edited(&program, |forward, _, _| {
        forward.splice(at..at, added.into_iter().map(|operation| Op { operation, ..like }));
    })
}

#[test]
fn what_is_sliced_and_gathered_again_is_the_same() {
    // With scattered activations the first gather over x is of rows; with replicated ones that over y is of columns.
    for (grid, activations, axis, wrong, name) in [
        ("x=2,y=2", Activations::Scattered, Axis::X, Axis::Y, "slice-rows"),
        ("y=2,z=2", Activations::Replicated, Axis::Y, Axis::Z, "slice-columns"),
    ] {
        let program = program(&model(1), grid, activations, Overlap::NONE, 8, 8);
        let again = gathered_again(program.clone(), axis, axis);
        assert!(pass_operations(&again).iter().any(|(_, op)| op.operation.name() == name));
        let report = prove(&again, 2).unwrap();
        assert!(report.ok, "{grid}: {report:?}");
        let report = prove(&gathered_again(program, axis, wrong), 2).unwrap();
        assert!(!report.ok, "{grid}: slices over {wrong} instead of {axis} were not found");
    }
}
