//! Recursive doubling and halving in `ceil(log2 G)` rounds, for any number of members (Bruck's form), and binomial trees.
//!
//! Position `j` of a member is block `(me + j) mod G`. After round `k` of an all-gather a member holds positions
//! `0 .. 2^(k+1)`; a reduce-scatter runs the same rounds backwards. Blocks lie rotated by the member, so that positions are
//! consecutive, or in their own order: then what a round moves may lie in two pieces, and moves in two exchanges.

use super::plan::{Arrival, Circle, Piece, Plan};

/// The rotated blocks of a member in scratch memory.
pub(crate) struct Rotated {
    /// Where each position begins; one more at the end.
    starts: Vec<usize>,
}

impl Rotated {
    /// Blocks with these lengths (by block), rotated for `circle`, from scratch element `start` on.
    pub(crate) fn new(circle: &Circle, start: usize, length: impl Fn(usize) -> usize) -> Self {
        let mut starts = vec![start];
        for position in 0..circle.size() {
            starts.push(starts[position] + length((circle.me + position) % circle.size()));
        }
        Self { starts }
    }

    /// Positions `from .. to`.
    fn piece(&self, from: usize, to: usize) -> Piece {
        Piece::scratch(self.starts[from], self.starts[to] - self.starts[from])
    }

    /// One position.
    pub(crate) fn position(&self, position: usize) -> Piece {
        self.piece(position, position + 1)
    }
}

/// Blocks in their own order.
pub(crate) struct Ordered<F> {
    size: usize,
    me: usize,
    /// Where blocks `from .. to` lie.
    piece: F,
}

impl<F: Fn(usize, usize) -> Piece> Ordered<F> {
    /// The blocks of `circle`; `piece` says where blocks `from .. to` lie.
    pub(crate) fn new(circle: &Circle, piece: F) -> Self {
        Self { size: circle.size(), me: circle.me, piece }
    }

    /// Positions `from .. from + count`. The partner of a round means the same blocks, and so the same pieces.
    fn pieces(&self, from: usize, count: usize) -> Vec<Piece> {
        let first = (self.me + from) % self.size;
        let end = first + count;
        if end > self.size {
            vec![(self.piece)(first, self.size), (self.piece)(0, end - self.size)]
        } else {
            vec![(self.piece)(first, end)]
        }
    }
}

/// The distances of the rounds, `1, 2, 4, ...`, and the blocks that each moves.
fn rounds(size: usize) -> Vec<(usize, usize)> {
    let distances = std::iter::successors(Some(1), |distance| Some(2 * distance));
    distances
        .take_while(|distance| *distance < size)
        .map(|distance| (distance, distance.min(size - distance)))
        .collect()
}

/// Gathers all blocks; the own one is at position 0.
pub(crate) fn all_gather(plan: &mut Plan, circle: &Circle, blocks: &Rotated) {
    for (distance, count) in rounds(circle.size()) {
        let send = (circle.before(distance), blocks.piece(0, count));
        let into = blocks.piece(distance, distance + count);
        plan.exchange(Some(send), Some(Arrival { from: circle.after(distance), into, with: None }));
    }
}

/// Sums all members' blocks; all of the own contributions are in place, the sum of the own block ends at position 0.
pub(crate) fn reduce_scatter(plan: &mut Plan, circle: &Circle, blocks: &Rotated) {
    for (distance, count) in rounds(circle.size()).into_iter().rev() {
        let send = (circle.after(distance), blocks.piece(distance, distance + count));
        let into = blocks.piece(0, count);
        plan.exchange(Some(send), Some(Arrival { from: circle.before(distance), into, with: Some(into) }));
    }
}

/// Exchanges pieces in turn: those that are sent with those that arrive, until there are no more of either.
fn exchange_all(plan: &mut Plan, to: usize, send: &[Piece], arrivals: &[Arrival]) {
    for turn in 0..send.len().max(arrivals.len()) {
        plan.exchange(send.get(turn).map(|piece| (to, *piece)), arrivals.get(turn).copied());
    }
}

/// As [`all_gather`], of blocks in their own order.
pub(crate) fn all_gather_ordered(plan: &mut Plan, circle: &Circle, blocks: &Ordered<impl Fn(usize, usize) -> Piece>) {
    for (distance, count) in rounds(circle.size()) {
        let from = circle.after(distance);
        let arrival = |into: Piece| Arrival { from, into, with: None };
        let arrivals: Vec<Arrival> = blocks.pieces(distance, count).into_iter().map(arrival).collect();
        exchange_all(plan, circle.before(distance), &blocks.pieces(0, count), &arrivals);
    }
}

/// As [`reduce_scatter`], of blocks in their own order; the sum of the own block ends in its place.
pub(crate) fn reduce_scatter_ordered(
    plan: &mut Plan,
    circle: &Circle,
    blocks: &Ordered<impl Fn(usize, usize) -> Piece>,
) {
    for (distance, count) in rounds(circle.size()).into_iter().rev() {
        let from = circle.before(distance);
        let arrival = |into: Piece| Arrival { from, into, with: Some(into) };
        let arrivals: Vec<Arrival> = blocks.pieces(0, count).into_iter().map(arrival).collect();
        exchange_all(plan, circle.after(distance), &blocks.pieces(distance, count), &arrivals);
    }
}

/// As [`reduce_scatter_ordered`], of blocks of `each` elements that are only read; the sum of the own block goes to
/// `result`. The first round takes its sums to scratch memory, where the others find them rotated.
pub(crate) fn reduce_scatter_apart(
    plan: &mut Plan,
    circle: &Circle,
    blocks: &Ordered<impl Fn(usize, usize) -> Piece>,
    each: usize,
    result: Piece,
) {
    let rounds = rounds(circle.size());
    let Some((first, count)) = rounds.last().copied() else {
        return plan.copy((blocks.piece)(0, 1), result);
    };
    let start = if first > 1 { plan.reserve(first * each) } else { 0 };
    let sums = |from: usize, to: usize| match first {
        1 => result,
        _ => Piece::scratch(start + from * each, (to - from) * each),
    };
    let mut done = 0;
    let mut arrivals = Vec::new();
    for with in blocks.pieces(0, count) {
        let sums = sums(0, count);
        let into = Piece { start: sums.start + done, len: with.len, ..sums };
        arrivals.push(Arrival { from: circle.before(first), into, with: Some(with) });
        done += with.len;
    }
    exchange_all(plan, circle.after(first), &blocks.pieces(first, count), &arrivals);
    // What the first round does not add to is summed from here on.
    for position in count..first {
        let own = (circle.me + position) % circle.size();
        plan.copy((blocks.piece)(own, own + 1), sums(position, position + 1));
    }
    for (distance, count) in rounds.into_iter().rev().skip(1) {
        let send = (circle.after(distance), sums(distance, distance + count));
        let with = sums(0, count);
        let into = if distance == 1 { result } else { with };
        plan.exchange(Some(send), Some(Arrival { from: circle.before(distance), into, with: Some(with) }));
    }
}

/// A binomial tree from the position `root`.
pub(crate) fn broadcast(plan: &mut Plan, circle: &Circle, root: usize, buffer: Piece) {
    let size = circle.size();
    let place = (circle.me + size - root) % size;
    for (distance, _) in rounds(size) {
        if (distance..2 * distance).contains(&place) {
            plan.exchange(None, Some(Arrival { from: circle.before(distance), into: buffer, with: None }));
        } else if place < distance && place + distance < size {
            plan.exchange(Some((circle.after(distance), buffer)), None);
        }
    }
}

/// A binomial tree to the position `root`. `own` is this member's contribution and `sum` where partial sums go: scratch,
/// or at the root the result.
pub(crate) fn reduce(plan: &mut Plan, circle: &Circle, root: usize, own: Piece, sum: Piece) {
    let size = circle.size();
    let place = (circle.me + size - root) % size;
    let mut partial = own;
    for (distance, _) in rounds(size).into_iter().rev() {
        if (distance..2 * distance).contains(&place) {
            plan.exchange(Some((circle.before(distance), partial)), None);
        } else if place < distance && place + distance < size {
            plan.exchange(None, Some(Arrival { from: circle.after(distance), into: sum, with: Some(partial) }));
            partial = sum;
        }
    }
}
