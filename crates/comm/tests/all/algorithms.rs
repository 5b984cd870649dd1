//! Every algorithm between thread ranks, against a plain reduction: any number of ranks, odd sizes, sizes below the number
//! of ranks, empty buffers, all element types; and the bits that do not depend on chance.

use half::{bf16, f16};
use quadrille_comm::{Element, Group, JobOptions, RankContext, Reduction, run_ranks};
use quadrille_spec::{Algorithm, Choice, Nodes, Routing};

/// Integers that every type holds exactly, sums over 16 ranks among them.
trait Number: Element {
    fn of(value: usize) -> Self;
    fn value(self) -> usize;
}

impl Number for f32 {
    fn of(value: usize) -> Self {
        value as f32
    }

    fn value(self) -> usize {
        self as usize
    }
}

impl Number for f64 {
    fn of(value: usize) -> Self {
        value as f64
    }

    fn value(self) -> usize {
        self as usize
    }
}

impl Number for bf16 {
    fn of(value: usize) -> Self {
        bf16::from_f32(value as f32)
    }

    fn value(self) -> usize {
        self.to_f32() as usize
    }
}

impl Number for f16 {
    fn of(value: usize) -> Self {
        f16::from_f32(value as f32)
    }

    fn value(self) -> usize {
        self.to_f32() as usize
    }
}

fn options(ranks: usize, per_node: usize, algorithm: Algorithm) -> JobOptions {
    let routing = Routing { nodes: Nodes::equal(ranks, per_node), choice: Choice::Always(algorithm), grid: None };
    JobOptions { routing, ..JobOptions::new(ranks) }
}

/// Element `i` of a rank's input: sums over 16 ranks stay below 256, where bf16 has every integer.
fn token(rank: usize, element: usize) -> usize {
    (3 * rank + 5 * element) % 16
}

fn tokens<T: Number>(rank: usize, elements: usize) -> Vec<T> {
    (0..elements).map(|element| T::of(token(rank, element))).collect()
}

fn values<T: Number>(elements: &[T]) -> Vec<usize> {
    elements.iter().map(|element| element.value()).collect()
}

fn sums(ranks: usize, elements: std::ops::Range<usize>) -> Vec<usize> {
    elements.map(|element| (0..ranks).map(|rank| token(rank, element)).sum()).collect()
}

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// All collectives of one size, `n` elements in all or in each chunk.
fn all<T: Number>(context: &RankContext, world: &Group, n: usize) -> Outcome {
    let rank = context.rank();
    let ranks = context.ranks();
    let sum = context.all_reduce(world, Reduction::Sum, tokens::<T>(rank, n)).wait()?;
    assert_eq!(values(&sum), sums(ranks, 0..n), "all-reduce");
    let most = context.all_reduce(world, Reduction::Max, tokens::<T>(rank, n)).wait()?;
    let expected: Vec<usize> = (0..n).map(|i| (0..ranks).map(|rank| token(rank, i)).max().unwrap()).collect();
    assert_eq!(values(&most), expected, "maximum");
    let full = tokens::<T>(rank, n * ranks);
    let (kept, part) = context.reduce_scatter(world, full.clone(), tokens::<T>(0, n)).wait()?;
    assert_eq!(values(&part), sums(ranks, rank * n..(rank + 1) * n), "reduce-scatter");
    assert_eq!(values(&kept), values(&full), "inputs stay");
    let scattered = context.reduce_scatter_in_place(world, full.clone()).wait()?;
    let mut expected = values(&full);
    expected[rank * n..(rank + 1) * n].copy_from_slice(&values(&part));
    assert_eq!(values(&scattered), expected, "reduce-scatter in place");
    let gathered: Vec<usize> = (0..ranks).flat_map(|rank| (0..n).map(move |i| token(rank, i))).collect();
    let (_, whole) = context.all_gather(world, tokens::<T>(rank, n), tokens::<T>(0, n * ranks)).wait()?;
    assert_eq!(values(&whole), gathered, "all-gather");
    let mut own = vec![T::default(); n * ranks];
    own[rank * n..(rank + 1) * n].copy_from_slice(&tokens::<T>(rank, n));
    assert_eq!(values(&context.all_gather_in_place(world, own).wait()?), gathered, "all-gather in place");
    for root in [0, ranks - 1] {
        let copy = context.broadcast(world, root, tokens::<T>(rank, n)).wait()?;
        assert_eq!(values(&copy), values(&tokens::<T>(root, n)), "broadcast");
        let reduced = context.reduce(world, root, tokens::<T>(rank, n)).wait()?;
        let expected = if rank == root { sums(ranks, 0..n) } else { values(&tokens::<T>(rank, n)) };
        assert_eq!(values(&reduced), expected, "reduce");
    }
    let (_, turned) = context.all_to_all(world, full, tokens::<T>(0, n * ranks)).wait()?;
    let expected: Vec<usize> = (0..ranks).flat_map(|from| (0..n).map(move |i| token(from, rank * n + i))).collect();
    assert_eq!(values(&turned), expected, "all-to-all");
    context.barrier(world).wait()?;
    Ok(())
}

fn check<T: Number>(ranks: usize, per_node: usize, algorithm: Algorithm, sizes: &[usize]) {
    run_ranks(&options(ranks, per_node, algorithm), |context| {
        let members: Vec<usize> = (0..ranks).collect();
        let world = context.group("world", &members)?;
        sizes.iter().try_for_each(|n| all::<T>(context, &world, *n))
    })
    .unwrap_or_else(|failure| panic!("{ranks} ranks, {per_node} on a node, {algorithm}: {failure}"));
}

#[test]
fn every_algorithm_equals_a_plain_reduction() {
    for ranks in 1..=16 {
        for algorithm in [Algorithm::Ring, Algorithm::Recursive] {
            check::<f32>(ranks, ranks, algorithm, &[0, 1, ranks.saturating_sub(1), 29]);
            check::<f64>(ranks, ranks, algorithm, &[0, 7]);
            check::<bf16>(ranks, ranks, algorithm, &[3, 16]);
            check::<f16>(ranks, ranks, algorithm, &[5]);
        }
        for per_node in (2..ranks).filter(|per_node| ranks.is_multiple_of(*per_node)) {
            check::<f32>(ranks, per_node, Algorithm::Hierarchical, &[0, 1, 29]);
            check::<f64>(ranks, per_node, Algorithm::Hierarchical, &[5]);
            check::<bf16>(ranks, per_node, Algorithm::Hierarchical, &[0, 9]);
        }
    }
    for algorithm in [Algorithm::Ring, Algorithm::Recursive, Algorithm::Hierarchical] {
        check::<f32>(4, 2, algorithm, &[100_003]);
        // Around 32768 elements recursive algorithms and chains change their way.
        check::<f64>(4, 2, algorithm, &[8_191, 8_192, 8_193, 32_768, 32_769]);
        check::<bf16>(4, 2, algorithm, &[8_191, 8_192, 32_767, 32_769]);
        check::<bf16>(4, 4, Algorithm::Native, &[17]);
    }
}

/// Sums that depend on the order: every member has the same bits, and every run.
#[test]
fn members_and_runs_agree_in_every_bit() {
    for algorithm in Algorithm::ALL {
        let run = || {
            run_ranks(&options(6, 3, algorithm), |context| {
                let world = context.group("world", &[0, 1, 2, 3, 4, 5])?;
                let odd = |i: usize| 1.0 / (1.0 + (i * (context.rank() + 7) % 101) as f32);
                let sum = context.all_reduce(&world, Reduction::Sum, (0..1000).map(odd).collect::<Vec<_>>()).wait()?;
                Ok(sum.into_iter().map(f32::to_bits).collect::<Vec<_>>())
            })
            .unwrap()
        };
        let first = run();
        assert!(first.iter().all(|bits| *bits == first[0]), "{algorithm}: members differ");
        assert_eq!(run(), first, "{algorithm}: runs differ");
    }
}
