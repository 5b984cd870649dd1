//! What a rank sends where it follows no plan: messages, and what the transport does in its own way, counted as a ring by
//! walking the ring's steps. The sends of a plan are counted from the plan.
//!
//! The predictor has closed forms; this is the independent derivation they are held against.
//! `n` elements in `g` parts: chunk `i` spans `floor(i n / g) .. floor((i + 1) n / g)`.

use std::ops::Range;

use quadrille_spec::CollectiveKind;

use crate::call::Call;
use crate::group::Group;

/// The elements of chunk `i` of `n` elements in `g` parts.
pub(crate) fn chunk(n: usize, g: usize, i: usize) -> Range<usize> {
    let cut = |i: usize| (i as u128 * n as u128 / g as u128) as usize;
    cut(i)..cut(i + 1)
}

/// Elements that the group's own member sends for a call.
pub(crate) fn of(group: &Group, call: &Call) -> usize {
    elements_sent(call, call.payload_elements(), group.size(), group.index())
}

/// Elements that member `index` of `g` sends for a call on `n` elements.
fn elements_sent(call: &Call, n: usize, g: usize, index: usize) -> usize {
    match call.operation {
        CollectiveKind::AllReduce => ring_reduce_scatter(n, g, index) + ring_all_gather(n, g, index),
        CollectiveKind::ReduceScatter => ring_reduce_scatter(n, g, index),
        CollectiveKind::AllGather => ring_all_gather(n, g, index),
        CollectiveKind::Broadcast => chain(n, g, index, call.peer.unwrap_or(0)),
        CollectiveKind::Reduce => chain_to(n, index, call.peer.unwrap_or(0)),
        CollectiveKind::AllToAll => (1..g).map(|step| chunk(n, g, (index + step) % g).len()).sum(),
        CollectiveKind::Send => n,
        CollectiveKind::Receive | CollectiveKind::Barrier | CollectiveKind::Fetch | CollectiveKind::Store => 0,
    }
}

/// Step by step, pass on the partial sum received last; it ends with the member that owns the chunk.
fn ring_reduce_scatter(n: usize, g: usize, index: usize) -> usize {
    let mut sending = (index + g - 1) % g;
    let mut sent = 0;
    for _ in 1..g {
        sent += chunk(n, g, sending).len();
        sending = (sending + g - 1) % g;
    }
    sent
}

/// Step by step, pass on the chunk received last, beginning with the own one.
fn ring_all_gather(n: usize, g: usize, index: usize) -> usize {
    let mut sending = index;
    let mut sent = 0;
    for _ in 1..g {
        sent += chunk(n, g, sending).len();
        sending = (sending + g - 1) % g;
    }
    sent
}

/// A pipelined chain from the root in index order: each passes everything on to the next, until the last.
fn chain(n: usize, g: usize, index: usize, root: usize) -> usize {
    let next = (index + 1) % g;
    if next == root { 0 } else { n }
}

/// A pipelined chain that begins after the root and ends there, in index order: each passes the sum of what it received
/// and its own elements on to the next; the root keeps it.
fn chain_to(n: usize, index: usize, root: usize) -> usize {
    if index == root { 0 } else { n }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_the_buffer() {
        for g in 1..=16 {
            for n in 0..40 {
                let mut end = 0;
                for i in 0..g {
                    let chunk = chunk(n, g, i);
                    assert_eq!(chunk.start, end);
                    end = chunk.end;
                }
                assert_eq!(end, n);
            }
        }
    }

    #[test]
    fn the_walk_meets_the_closed_forms() {
        for g in 2..=16 {
            for n in [0, 1, 5, 16, 17, 1000] {
                let mut total = 0;
                for p in 0..g {
                    assert_eq!(ring_all_gather(n, g, p), n - chunk(n, g, (p + 1) % g).len());
                    assert_eq!(ring_reduce_scatter(n, g, p), n - chunk(n, g, p).len());
                    total += ring_all_gather(n, g, p);
                }
                assert_eq!(total, n * (g - 1));
                assert_eq!((0..g).map(|p| chain(n, g, p, 1)).sum::<usize>(), n * (g - 1));
                assert_eq!((0..g).map(|p| chain_to(n, p, 1)).sum::<usize>(), n * (g - 1));
            }
        }
    }
}
