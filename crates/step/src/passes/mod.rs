//! Transformations of a piece's passes, one file each.
//!
//! The overlap passes (AxoNN SC24, section V-D) move only issues and waits (and the accumulation that follows a wait),
//! never past an operation that touches the same storages; recomputation repeats operations on the same operands; so
//! no result changes in any bit. Interleaved chunks sum weight gradients in another order.

mod interleave;
mod overlap_all_gather;
mod overlap_all_reduce;
mod overlap_reduce_scatter;
mod put_off;
mod recompute;

pub(crate) use interleave::interleave;
pub(crate) use put_off::put_off_weight_gradients;
pub(crate) use recompute::recompute;

use quadrille_spec::Overlap;

use crate::{Op, Operation, Value, ValueId};

/// Applies the overlap passes that are switched on.
pub(crate) fn overlap(overlap: Overlap, values: &[Value], forward: &mut [Op], backward: &mut Vec<Op>) {
    if overlap.all_reduce {
        overlap_all_reduce::apply(values, backward);
    }
    if overlap.reduce_scatter {
        overlap_reduce_scatter::apply(values, backward);
    }
    if overlap.all_gather {
        overlap_all_gather::apply(values, forward);
        overlap_all_gather::apply(values, backward);
    }
}

/// Whether two operations touch a common storage, so that their order matters. Two readers of one storage conflict
/// as well if one is a collective: its buffers are away until its wait.
fn conflict(values: &[Value], a: &Operation, b: &Operation) -> bool {
    let storage = |value: &ValueId| values[value.0].storage;
    let others = b.operands();
    a.operands().all().iter().any(|value| others.all().iter().any(|other| storage(other) == storage(value)))
}

/// Moves the operation at `from` down to just before index `to`, or as far as no conflict stands in the way.
fn sink(values: &[Value], ops: &mut [Op], from: usize, to: usize) {
    let mut at = from;
    while at + 1 < to && !conflict(values, &ops[at].operation, &ops[at + 1].operation) {
        ops.swap(at, at + 1);
        at += 1;
    }
}

/// Moves the operation at `from` up to index `to`, or as far as no conflict stands in the way.
fn hoist(values: &[Value], ops: &mut [Op], from: usize, to: usize) {
    let mut at = from;
    while at > to && !conflict(values, &ops[at].operation, &ops[at - 1].operation) {
        ops.swap(at, at - 1);
        at -= 1;
    }
}
