//! OAG: the next layer's weight is gathered under this layer's computation.

use quadrille_spec::{Axis, CollectiveKind};

use super::hoist;
use crate::{Collective, Op, Operation, Value};

/// The issue of every weight gather moves up to just behind the wait of the gather before it: prefetch of depth one.
pub(super) fn apply(values: &[Value], ops: &mut [Op]) {
    let gathers =
        |collective: Collective| collective.kind == CollectiveKind::AllGather && collective.axes == Axis::Z.only();
    let mut previous_wait = None;
    for at in 0..ops.len() {
        match (&ops[at].operation, previous_wait) {
            (Operation::Issue(collective), Some(wait)) if gathers(*collective) => {
                // The shard itself may still be gathered over data: its wait goes first.
                let carried = at > 0 && matches!(ops[at - 1].operation, Operation::WaitCarried(_));
                if carried {
                    hoist(values, ops, at - 1, wait + 1);
                }
                hoist(values, ops, at, wait + 1);
            }
            (Operation::Wait(collective), _) if gathers(*collective) => previous_wait = Some(at),
            _ => {}
        }
    }
}
