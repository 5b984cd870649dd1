//! ORS: reduce-scatters of weight gradients are waited for, and accumulated, after the whole backward pass, or where the next
//! one begins.

use std::collections::HashSet;

use quadrille_spec::CollectiveKind;

use crate::{Op, Operation, StorageId, Value, ValueId, Write, kind};

/// Takes the waits of the last reduce-scatter of each weight gradient, with their accumulations, out and appends them
/// in order; `in_turn`: behind the issue of the next of them. Nothing else reads the shard, and nothing before the next
/// microbatch reads the gradient, so there is nothing to conflict with.
pub(super) fn apply(values: &[Value], ops: &mut Vec<Op>, in_turn: bool) {
    let storage = |value: ValueId| values[value.0].storage;
    let accumulated: HashSet<StorageId> = ops.iter().filter_map(accumulates).map(storage).collect();
    // What else touches the shard, the sum of its copies, has to find it.
    let others = ops.iter().filter(|op| accumulates(op).is_none() && !is_collective(op));
    let touched: HashSet<StorageId> =
        others.flat_map(|op| op.operation.operands().all().iter().map(|id| storage(*id)).collect::<Vec<_>>()).collect();
    let waits = |shard: StorageId| accumulated.contains(&shard) && !touched.contains(&shard);
    let scatters = |op: &Op| match op.operation {
        Operation::Issue(collective) | Operation::Wait(collective) => {
            op.weight_gradient && collective.kind == CollectiveKind::ReduceScatter && waits(storage(collective.output))
        }
        _ => false,
    };
    let is_deferred = |op: &Op| match op.operation {
        Operation::Wait(_) => scatters(op),
        _ => accumulates(op).is_some_and(|shard| waits(storage(shard))),
    };
    let mut deferred = Vec::new();
    for op in std::mem::take(ops) {
        if is_deferred(&op) {
            deferred.push(op);
            continue;
        }
        let next = in_turn && scatters(&op);
        ops.push(op);
        if next {
            ops.append(&mut deferred);
        }
    }
    ops.append(&mut deferred);
}

/// What an operation adds to a weight's gradient, as it is or compressed.
fn accumulates(op: &Op) -> Option<ValueId> {
    match op.operation {
        Operation::Accumulate(kind::Accumulate { input, .. }) if op.weight_gradient => Some(input),
        Operation::Compress(kind::Compress { input, write: Write::AccumulateMicrobatches, .. }) => Some(input),
        _ => None,
    }
}

fn is_collective(op: &Op) -> bool {
    matches!(op.operation, Operation::Issue(_) | Operation::Wait(_))
}
