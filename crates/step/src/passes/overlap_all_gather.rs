//! OAG: the next layer's weight is gathered under this layer's computation.

use quadrille_spec::{Axis, CollectiveKind};

use super::hoist;
use crate::{Collective, Op, Operation, Value};

/// The issue of every weight gather moves up to just behind the wait of the gather before it: prefetch of depth one.
/// Gathers that begin together stay in their order.
pub(super) fn apply(values: &[Value], ops: &mut [Op]) {
    let gathers =
        |collective: Collective| collective.kind == CollectiveKind::AllGather && collective.axes == Axis::Z.only();
    let mut behind_last_wait = None;
    for at in 0..ops.len() {
        match (&ops[at].operation, &mut behind_last_wait) {
            (Operation::Issue(collective), Some(to)) if gathers(*collective) => {
                // The shard itself may still be gathered over data: its wait goes first.
                let carried = at > 0 && matches!(ops[at - 1].operation, Operation::WaitCarried(_));
                if carried {
                    hoist(values, ops, at - 1, *to);
                    *to += 1;
                }
                hoist(values, ops, at, *to);
                *to += 1;
            }
            (Operation::Wait(collective), _) if gathers(*collective) => behind_last_wait = Some(at + 1),
            _ => {}
        }
    }
}
