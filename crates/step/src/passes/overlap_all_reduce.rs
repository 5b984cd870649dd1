//! OAR: the reduction of a layer's input gradient runs under its weight-gradient product.

use super::sink;
use crate::{GemmPass, Op, Operation, Value};

/// Each wait that stands between an input-gradient product and the weight-gradient product of the same layer moves
/// behind the latter.
pub(super) fn apply(values: &[Value], ops: &mut [Op]) {
    let is = |op: &Op, wanted: GemmPass| matches!(op.operation, Operation::Gemm { pass, .. } if pass == wanted);
    for start in 0..ops.len() {
        if !is(&ops[start], GemmPass::InputGradient) {
            continue;
        }
        let Some(product) = (start..ops.len()).find(|&at| is(&ops[at], GemmPass::WeightGradient)) else { break };
        for at in (start + 1..product).rev() {
            if matches!(ops[at].operation, Operation::Wait(_)) {
                sink(values, ops, at, product + 1);
            }
        }
    }
}
