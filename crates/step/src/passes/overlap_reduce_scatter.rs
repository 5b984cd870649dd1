//! ORS: reduce-scatters of weight gradients are waited for, and accumulated, after the whole backward pass, or where the next
//! one begins.

use quadrille_spec::CollectiveKind;

use crate::{Op, Operation, Value, kind};

/// Takes the waits of the last reduce-scatter of each weight gradient, with their accumulations, out and appends them
/// in order; `in_turn`: behind the issue of the next of them. Nothing else reads the shard, and nothing before the next
/// microbatch reads the gradient, so there is nothing to conflict with.
pub(super) fn apply(values: &[Value], ops: &mut Vec<Op>, in_turn: bool) {
    let storage = |value: crate::ValueId| values[value.0].storage;
    let accumulated: Vec<_> = ops
        .iter()
        .filter_map(|op| match op.operation {
            Operation::Accumulate(kind::Accumulate { input, .. }) if op.weight_gradient => Some(storage(input)),
            _ => None,
        })
        .collect();
    let scatters = |op: &Op| match op.operation {
        Operation::Issue(collective) | Operation::Wait(collective) => {
            op.weight_gradient
                && collective.kind == CollectiveKind::ReduceScatter
                && accumulated.contains(&storage(collective.output))
        }
        _ => false,
    };
    let is_deferred = |op: &Op| match op.operation {
        Operation::Accumulate(_) => op.weight_gradient,
        Operation::Wait(_) => scatters(op),
        _ => false,
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
