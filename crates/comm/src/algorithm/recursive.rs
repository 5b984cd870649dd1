//! Recursive doubling and halving in `ceil(log2 G)` rounds, for any number of members (Bruck's form), and binomial trees.
//!
//! Blocks lie rotated: position `j` of the work area is block `(me + j) mod G`. After round `k` of an all-gather a member
//! holds positions `0 .. 2^(k+1)`; a reduce-scatter runs the same rounds backwards.

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
