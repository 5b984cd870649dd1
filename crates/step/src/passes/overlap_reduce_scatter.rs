//! ORS: reduce-scatters of weight gradients are waited for, and accumulated, after the whole backward pass.

use quadrille_spec::CollectiveKind;

use crate::{Op, Operation, Value, kind};

/// Takes the waits of the last reduce-scatter of each weight gradient, with their accumulations, out and appends them
/// in order. Nothing else reads the shard, and nothing before the next microbatch reads the gradient, so there is
/// nothing to conflict with.
pub(super) fn apply(values: &[Value], ops: &mut Vec<Op>) {
    let storage = |value: crate::ValueId| values[value.0].storage;
    let accumulated: Vec<_> = ops
        .iter()
        .filter_map(|op| match op.operation {
            Operation::Accumulate(kind::Accumulate { input, .. }) if op.weight_gradient => Some(storage(input)),
            _ => None,
        })
        .collect();
    let is_deferred = |op: &Op| match op.operation {
        Operation::Accumulate(_) => op.weight_gradient,
        Operation::Wait(collective) => {
            op.weight_gradient
                && collective.kind == CollectiveKind::ReduceScatter
                && accumulated.contains(&storage(collective.output))
        }
        _ => false,
    };
    let (deferred, kept): (Vec<Op>, Vec<Op>) = ops.drain(..).partition(is_deferred);
    ops.extend(kept);
    ops.extend(deferred);
}
