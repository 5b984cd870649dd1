//! OAR: the reduction of a layer's input gradient runs under its weight-gradient product.

use super::sink;
use crate::{GemmPass, Op, Operation, Value, kind};

/// Each wait (of SUMMA: with the panel that it stores) that stands between an input-gradient product and the
/// weight-gradient product of the same layer and overlap chunk moves behind the latter. In zero-bubble schedules, where
/// weight gradients are put off, nothing is left to hide it under.
pub(super) fn apply(values: &[Value], ops: &mut [Op]) {
    let product = |op: &Op, wanted: GemmPass| match op.operation {
        Operation::Gemm(kind::Gemm { pass, left, right, .. }) if pass == wanted => {
            Some((op.layer, values[left.0].chunk.or(values[right.0].chunk)))
        }
        _ => None,
    };
    // Of several products of one input gradient, panel by panel, the first has moved the waits of all. Each wait that moved
    // behind the weight-gradient product moved that one up; `end` stays, since only those waits stand before it then.
    let mut done = Vec::new();
    for start in 0..ops.len() {
        let Some(of) = product(&ops[start], GemmPass::InputGradient) else { continue };
        if done.iter().any(|(known, end)| *known == of && start < *end) {
            continue;
        }
        let hides = |op: &Op| product(op, GemmPass::WeightGradient) == Some(of);
        let Some(end) = (start..ops.len()).find(|at| hides(&ops[*at])) else { continue };
        for at in (start + 1..end).rev() {
            match ops[at].operation {
                Operation::StorePanel(_) | Operation::Wait(_) => sink(values, ops, at, end + 1),
                _ => {}
            }
        }
        done.retain(|(known, _)| *known != of);
        done.push((of, end));
    }
}
