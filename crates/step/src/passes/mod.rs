//! Transformations of a piece's passes, one file each.
//!
//! The overlap passes (AxoNN SC24, section V-D) move only issues and waits (and the accumulation that follows a wait),
//! never past an operation that touches the same storages; recomputation repeats operations on the same operands; so
//! no result changes in any bit. Interleaved chunks sum weight gradients in another order.

mod gather_blocks;
mod interleave;
mod overlap_all_gather;
mod overlap_all_reduce;
mod overlap_all_to_all;
mod overlap_reduce_scatter;
mod put_off;
mod recompute;
mod reduce_under_backward;

pub(crate) use interleave::interleave;
pub(crate) use put_off::put_off_weight_gradients;
pub(crate) use recompute::recompute;
pub(crate) use reduce_under_backward::reduce_under_backward;

use quadrille_spec::Overlap;

use crate::builder::Builder;
use crate::{GemmPass, Op, Operation, Value, ValueId};

/// Applies the overlap passes that are switched on.
pub(crate) fn overlap(b: &mut Builder, forward: &mut Vec<Op>, backward: &mut Vec<Op>) {
    let Overlap { all_reduce, reduce_scatter, all_gather, all_to_all } = b.layout.overlap;
    if b.practice.gathers_inputs_again {
        gather_inputs_early(&b.values, backward);
    }
    if all_reduce {
        overlap_all_reduce::apply(&b.values, backward);
    }
    if reduce_scatter {
        overlap_reduce_scatter::apply(&b.values, backward, b.practice.scatters_in_turn);
    }
    if b.practice.gathers_blocks {
        gather_blocks::apply(b, forward);
        gather_blocks::apply(b, backward);
    }
    if all_gather {
        overlap_all_gather::apply(&b.values, forward);
        overlap_all_gather::apply(&b.values, backward);
    }
    if all_to_all {
        overlap_all_to_all::apply(&b.values, forward);
        overlap_all_to_all::apply(&b.values, backward);
    }
}

/// Inputs that are gathered for weight gradients alone are under way while the input gradients of their layers are computed.
fn gather_inputs_early(values: &[Value], ops: &mut [Op]) {
    for at in 0..ops.len() {
        let Op { layer, weight_gradient: true, operation: Operation::Issue(collective), .. } = ops[at] else {
            continue;
        };
        let Some(chunk) = values[collective.output.0].chunk else { continue };
        let product = |op: &Op| match op.operation {
            Operation::Gemm(gemm) if gemm.pass == GemmPass::InputGradient && op.layer == layer => {
                values[gemm.output.0].chunk == Some(chunk)
            }
            _ => false,
        };
        if let Some(before) = ops[..at].iter().rposition(product) {
            hoist(values, ops, at, before);
        }
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
