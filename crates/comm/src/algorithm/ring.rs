//! Rings: `G - 1` steps from neighbour to neighbour. Broadcasts and reductions are chains, pipelined in segments.

use super::plan::{Arrival, Circle, Piece, Plan};

/// Elements of a segment in a chain.
pub(super) const SEGMENT: usize = 32 << 10;

/// Step by step, passes on the block received last, beginning with the own one. `block(i)` is where position `i`'s block
/// lies; the own one is there.
pub(crate) fn all_gather(plan: &mut Plan, circle: &Circle, block: impl Fn(usize) -> Piece) {
    let size = circle.size();
    let me = circle.me;
    for step in 0..size - 1 {
        let send = block((me + size - step) % size);
        let into = block((me + 2 * size - step - 1) % size);
        let arrival = Arrival { from: circle.before(1), into, with: None };
        plan.exchange(Some((circle.after(1), send)), Some(arrival));
    }
}

/// Step by step, passes on the partial sum received last, to end with the position that owns the block. `own(i)` is this
/// member's contribution to block `i`, `result` where the sum of its own block goes. Block `i` is summed from position
/// `i + 1` on.
pub(crate) fn reduce_scatter(plan: &mut Plan, circle: &Circle, own: impl Fn(usize) -> Piece, result: Piece) {
    let size = circle.size();
    let me = circle.me;
    if size == 1 {
        return plan.copy(own(0), result);
    }
    let longest = (0..size).map(|position| own(position).len).max().unwrap_or(0);
    let halves = plan.reserve(if size > 2 { longest * (size - 2).min(2) } else { 0 });
    let mut send = own((me + size - 1) % size);
    for step in 0..size - 1 {
        let with = own((me + 2 * size - 2 - step) % size);
        let last = step == size - 2;
        let into = if last { result } else { Piece::scratch(halves + step % 2 * longest, with.len) };
        let arrival = Arrival { from: circle.before(1), into, with: Some(with) };
        plan.exchange(Some((circle.after(1), send)), Some(arrival));
        send = into;
    }
}

/// From the position `root` to the one before it, in segments.
pub(crate) fn broadcast(plan: &mut Plan, circle: &Circle, root: usize, buffer: Piece) {
    let size = circle.size();
    let place = (circle.me + size - root) % size;
    let segments = segments(buffer);
    let arrival = |into: Piece| Arrival { from: circle.before(1), into, with: None };
    let next = |piece: Piece| (circle.after(1), piece);
    if place == 0 {
        segments.iter().for_each(|piece| plan.exchange(Some(next(*piece)), None));
    } else if place == size - 1 {
        segments.iter().for_each(|piece| plan.exchange(None, Some(arrival(*piece))));
    } else {
        for step in 0..=segments.len() {
            let send = step.checked_sub(1).map(|before| next(segments[before]));
            plan.exchange(send, segments.get(step).copied().map(arrival));
        }
    }
}

/// From the position after `root` round to `root`, in segments: each adds its own. `buffer` stays as it is, except at the
/// root.
pub(crate) fn reduce(plan: &mut Plan, circle: &Circle, root: usize, buffer: Piece) {
    let size = circle.size();
    let place = (circle.me + 2 * size - root - 1) % size; // 0 begins, size - 1 is the root
    let segments = segments(buffer);
    let arrival = |into: Piece, with: Piece| Arrival { from: circle.before(1), into, with: Some(with) };
    if place == 0 {
        segments.iter().for_each(|piece| plan.exchange(Some((circle.after(1), *piece)), None));
    } else if place == size - 1 {
        segments.iter().for_each(|piece| plan.exchange(None, Some(arrival(*piece, *piece))));
    } else {
        let longest = segments.iter().map(|piece| piece.len).max().unwrap_or(0);
        let halves = plan.reserve(2 * longest);
        let sum = |segment: usize| Piece::scratch(halves + segment % 2 * longest, segments[segment].len);
        for step in 0..=segments.len() {
            let send = step.checked_sub(1).map(|before| (circle.after(1), sum(before)));
            let receive = segments.get(step).map(|with| arrival(sum(step), *with));
            plan.exchange(send, receive);
        }
    }
}

fn segments(buffer: Piece) -> Vec<Piece> {
    let starts = (0..buffer.len).step_by(SEGMENT);
    let piece = |at: usize| Piece { start: buffer.start + at, len: SEGMENT.min(buffer.len - at), ..buffer };
    starts.map(piece).collect()
}
