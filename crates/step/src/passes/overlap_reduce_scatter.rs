//! ORS: reduce-scatters of weight gradients are waited for, and accumulated, after the whole backward pass.

use quadrille_spec::{Axis, CollectiveKind};

use crate::{Op, Operation, Value};

/// Takes the waits of z reduce-scatters with their accumulations out and appends them in order. Nothing else reads
/// the shard, and nothing before the next microbatch reads the gradient, so there is nothing to conflict with.
pub(super) fn apply(values: &[Value], ops: &mut Vec<Op>) {
    let reduced_shard = |op: &Op| match op.operation {
        Operation::Wait(collective)
            if collective.kind == CollectiveKind::ReduceScatter && collective.axes == Axis::Z.only() =>
        {
            Some(values[collective.output.0].storage)
        }
        _ => None,
    };
    let shards: Vec<_> = ops.iter().filter_map(reduced_shard).collect();
    let is_deferred = |op: &Op| match op.operation {
        Operation::Accumulate { input, .. } => shards.contains(&values[input.0].storage),
        _ => reduced_shard(op).is_some(),
    };
    let (deferred, kept): (Vec<Op>, Vec<Op>) = ops.drain(..).partition(is_deferred);
    ops.extend(kept);
    ops.extend(deferred);
}
