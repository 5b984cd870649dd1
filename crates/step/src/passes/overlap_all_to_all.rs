//! OAA: rows travel to experts and back under whatever does not need them.

use quadrille_spec::CollectiveKind;

use super::sink;
use crate::{Op, Operation, Value};

/// The wait of every all-to-all moves down to the first operation that touches its rows: past the shared perceptron, or, in the
/// backward pass, past its gradients and those of experts' weights.
pub(super) fn apply(values: &[Value], ops: &mut [Op]) {
    for at in (0..ops.len()).rev() {
        if matches!(ops[at].operation, Operation::Wait(collective) if collective.kind == CollectiveKind::AllToAll) {
            sink(values, ops, at, ops.len());
        }
    }
}
