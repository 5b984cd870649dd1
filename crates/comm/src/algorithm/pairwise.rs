//! Pairwise exchanges: every member meets every other once.

use super::plan::{Arrival, Circle, Piece, Plan};

/// In step `s` to the position `s` places after, from the one `s` places before. `sent(i)` is what goes to position `i`,
/// `received(i)` where what comes from there goes; the own piece is copied.
pub(crate) fn all_to_all(
    plan: &mut Plan,
    circle: &Circle,
    sent: impl Fn(usize) -> Piece,
    received: impl Fn(usize) -> Piece,
) {
    let size = circle.size();
    let me = circle.me;
    plan.copy(sent(me), received(me));
    for step in 1..size {
        let arrival = Arrival { from: circle.before(step), into: received((me + size - step) % size), with: None };
        plan.exchange(Some((circle.after(step), sent((me + step) % size))), Some(arrival));
    }
}
