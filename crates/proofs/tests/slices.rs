//! The transitions from replicated to sharded. No layer needs one today, so a program is given some: what a gather has
//! put together is sliced again and gathered from the slice, which must change nothing.

use quadrille_proofs::{edited, is_collective, model, program, prove};
use quadrille_spec::{Activations, Axis, CollectiveKind, Overlap};
use quadrille_step::{Op, Operation, StepProgram, StorageId, Value, ValueId};

/// A value like `of` in a storage of its own.
fn another(program: &mut StepProgram, of: ValueId) -> ValueId {
    let storage = StorageId(program.storages.len());
    let like: &Value = &program.values[of.0];
    program.storages.push(program.storages[like.storage.0].clone());
    let value = Value { name: format!("{} sliced", like.name), storage, ..like.clone() };
    program.values.push(value);
    ValueId(program.values.len() - 1)
}

/// `program` in which the first gather over `axis` of activations is done once more from a slice of its result: this
/// rank's part if it is cut over the same axis.
fn gathered_again(mut program: StepProgram, axis: Axis, cut: Axis) -> StepProgram {
    let wait = program.pass.ops.iter().position(|op| {
        matches!(op.operation, Operation::Wait(_))
            && is_collective(op)
                .is_some_and(|gather| gather.kind == CollectiveKind::AllGather && gather.axes == axis.only())
    });
    let wait = wait.expect("scattered activations are gathered over x and y");
    let gather = is_collective(&program.pass.ops[wait]).expect("found as one");
    let layer = program.pass.ops[wait].layer;
    // Columns are gathered in blocks and unpacked after.
    let unpack = match program.pass.ops[wait + 1].operation {
        Operation::Unpack { output, .. } => Some(output),
        _ => None,
    };
    let sliced = another(&mut program, gather.input);
    let again = quadrille_step::Collective { input: sliced, ..gather };
    let slice = match unpack {
        Some(input) => Operation::SliceColumns { axis: cut, input, output: sliced },
        None => Operation::SliceRows { axis: cut, input: gather.output, output: sliced },
    };
    let mut added = vec![slice, Operation::Issue(again), Operation::Wait(again)];
    added.extend(unpack.map(|output| Operation::Unpack { axis, input: gather.output, output }));
    let at = wait + 1 + usize::from(unpack.is_some());
    edited(&program, |pass, _| {
        pass.splice(at..at, added.into_iter().map(|operation| Op { layer, operation }));
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
        assert!(again.pass.ops.iter().any(|op| op.operation.name() == name));
        let report = prove(&again, 2).unwrap();
        assert!(report.ok, "{grid}: {report:?}");
        let report = prove(&gathered_again(program, axis, wrong), 2).unwrap();
        assert!(!report.ok, "{grid}: slices over {wrong} instead of {axis} were not found");
    }
}
