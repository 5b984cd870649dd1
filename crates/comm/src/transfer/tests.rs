//! Collectives in shared memory on both sides of every size from which on transfers are done in another way: who does the
//! work, and whether copies bypass the caches.

use std::error::Error;

use super::STREAM_BYTES;
use crate::context::RankContext;
use crate::element::{Element, Reduction};
use crate::group::Group;
use crate::rendezvous::SMALL_BYTES;
use crate::run::{JobOptions, run_ranks};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Element `i` of a rank's input. Every type holds the sum of three; a prime period tells places apart.
fn number(rank: usize, i: usize) -> u8 {
    ((rank * 29 + i) % 61) as u8
}

fn input<T: From<u8>>(rank: usize, n: usize) -> Vec<T> {
    (0..n).map(|i| T::from(number(rank, i))).collect()
}

fn blank<T: From<u8> + Clone>(n: usize) -> Vec<T> {
    vec![T::from(255); n]
}

#[track_caller]
fn assert_all<T: Element + From<u8>>(what: &str, found: &[T], expected: impl Fn(usize) -> u8) {
    let wrong = found.iter().enumerate().position(|(i, found)| *found != T::from(expected(i)));
    assert_eq!(wrong, None, "{what} of {} elements of {} bytes is wrong from there on", found.len(), size_of::<T>());
}

/// The collectives whose buffers are all of `n` elements.
fn whole<T: Element + From<u8>>(context: &RankContext, world: &Group, n: usize) -> Outcome {
    let rank = context.rank();
    let ranks = context.ranks();
    let sum = |i: usize| (0..ranks).map(|rank| number(rank, i)).sum();
    let reduced = context.all_reduce(world, Reduction::Sum, input::<T>(rank, n)).wait()?;
    assert_all("all-reduce", &reduced, sum);
    let reduced = context.reduce(world, 1, input::<T>(rank, n)).wait()?;
    assert_all("reduce", &reduced, |i| if rank == 1 { sum(i) } else { number(rank, i) });
    let sent = context.broadcast(world, 1, input::<T>(rank, n)).wait()?;
    assert_all("broadcast", &sent, |i| number(1, i));
    Ok(())
}

/// Those of chunks of `n` elements.
fn chunked<T: Element + From<u8>>(context: &RankContext, world: &Group, n: usize) -> Outcome {
    let rank = context.rank();
    let ranks = context.ranks();
    let sum = |i: usize| (0..ranks).map(|rank| number(rank, i)).sum();
    let all = input::<T>(rank, n * ranks);
    let (all, part) = context.reduce_scatter(world, all, blank::<T>(n)).wait()?;
    assert_all("reduce-scatter", &part, |i| sum(rank * n + i));
    let (all, turned) = context.all_to_all(world, all, blank::<T>(n * ranks)).wait()?;
    assert_all("all-to-all", &turned, |i| number(i / n, rank * n + i % n));
    let scattered = context.reduce_scatter_in_place(world, all).wait()?;
    assert_all("reduce-scatter in place", &scattered, |i| if i / n == rank { sum(i) } else { number(rank, i) });
    let (own, gathered) = context.all_gather(world, input::<T>(rank, n), blank::<T>(n * ranks)).wait()?;
    assert_all("all-gather", &gathered, |i| number(i / n, i % n));
    let mut within = blank::<T>(n * ranks);
    within[rank * n..(rank + 1) * n].copy_from_slice(&own);
    let gathered = context.all_gather_in_place(world, within).wait()?;
    assert_all("all-gather in place", &gathered, |i| number(i / n, i % n));
    Ok(())
}

/// Runs all collectives where the buffers of all ranks together have `bytes`, and a little less and more. Odd lengths leave a
/// rest after the last block of a streamed copy.
fn around<T: Element + From<u8>>(ranks: usize, bytes: usize) {
    let members: Vec<usize> = (0..ranks).collect();
    run_ranks(&JobOptions::new(ranks), |context| {
        let world = context.group("world", &members)?;
        let full = bytes / (ranks * size_of::<T>());
        let each = bytes / (ranks * ranks * size_of::<T>());
        for change in [-1, 0, 1] {
            whole::<T>(context, &world, full.saturating_add_signed(change))?;
            chunked::<T>(context, &world, each.saturating_add_signed(change))?;
        }
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{ranks} ranks: {failure}"));
}

#[test]
fn collectives_around_the_size_from_which_all_members_work() {
    for ranks in [2, 3] {
        around::<f32>(ranks, SMALL_BYTES);
        around::<f64>(ranks, SMALL_BYTES);
        around::<half::bf16>(ranks, SMALL_BYTES);
    }
}

#[test]
fn collectives_around_the_size_from_which_copies_are_streamed() {
    around::<f32>(2, STREAM_BYTES);
    around::<f64>(2, STREAM_BYTES);
    around::<half::bf16>(2, STREAM_BYTES);
}
