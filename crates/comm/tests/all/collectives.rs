//! Every collective against plain loops over all ranks' inputs, bit for bit.

use std::error::Error;

use proptest::prelude::*;
use quadrille_comm::{Element, Group, JobOptions, RankContext, Reduction, run_ranks};

/// Runs `body` on all ranks with their group `world`; a failure is the test's.
fn on_ranks<R: Send>(
    ranks: usize,
    body: impl Fn(&RankContext, &Group) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
) -> Vec<R> {
    let members: Vec<usize> = (0..ranks).collect();
    run_ranks(&JobOptions::new(ranks), |context| body(context, &context.group("world", &members)?))
        .unwrap_or_else(|failure| panic!("{failure}"))
}

trait Sample: Element + std::ops::Add<Output = Self> + std::fmt::Debug {
    fn from_f64(value: f64) -> Self;
}
impl Sample for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}
impl Sample for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// Numbers of very different size, so that another order of a sum has other bits.
fn input<T: Sample>(rank: usize, elements: usize) -> Vec<T> {
    let value = |i: usize| {
        let bits = (rank as u64 * 1_000_003 + i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let unit = (bits >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        T::from_f64(unit * f64::powi(10.0, (bits % 7) as i32))
    };
    (0..elements).map(value).collect()
}

fn inputs<T: Sample>(ranks: usize, elements: usize) -> Vec<Vec<T>> {
    (0..ranks).map(|rank| input(rank, elements)).collect()
}

fn reduced<T: Sample>(ranks: usize, elements: usize, how: fn(T, T) -> T) -> Vec<T> {
    let all = inputs(ranks, elements);
    (0..elements).map(|i| all.iter().map(|input| input[i]).reduce(how).unwrap()).collect()
}

fn sum<T: Sample>(a: T, b: T) -> T {
    a + b
}

fn max<T: Sample>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

fn check_all_reduce<T: Sample>(ranks: usize, elements: usize) {
    for (reduction, how) in [(Reduction::Sum, sum as fn(T, T) -> T), (Reduction::Max, max)] {
        let results = on_ranks(ranks, |context, world| {
            Ok(context.all_reduce(world, reduction, input::<T>(context.rank(), elements)).wait()?)
        });
        let expected = reduced(ranks, elements, how);
        results.iter().for_each(|result| assert_eq!(result, &expected, "{ranks} ranks, {elements} elements"));
    }
}

/// `each` elements per rank and chunk.
fn check_chunked<T: Sample>(ranks: usize, each: usize) {
    let n = ranks * each;
    let blank = |elements| vec![T::from_f64(-7.0); elements];
    let results = on_ranks(ranks, |context, world| {
        let rank = context.rank();
        let scattered = context.reduce_scatter(world, input::<T>(rank, n), blank(each));
        let gathered = context.all_gather(world, input::<T>(rank, each), blank(n));
        let exchanged = context.all_to_all(world, input::<T>(rank, n), blank(n));
        Ok([scattered.wait()?, gathered.wait()?, exchanged.wait()?])
    });
    let all = inputs::<T>(ranks, n);
    let sums = reduced(ranks, n, sum);
    for (p, [scattered, gathered, exchanged]) in results.into_iter().enumerate() {
        let own = p * each..(p + 1) * each;
        assert_eq!(scattered, (all[p].clone(), sums[own.clone()].to_vec()));
        assert_eq!(gathered, (input(p, each), inputs(ranks, each).concat()));
        let column: Vec<T> = all.iter().flat_map(|input| input[own.clone()].to_vec()).collect();
        assert_eq!(exchanged, (all[p].clone(), column));
    }
}

fn check_broadcast<T: Sample>(ranks: usize, elements: usize, root: usize) {
    let results = on_ranks(ranks, |context, world| {
        Ok(context.broadcast(world, root, input::<T>(context.rank(), elements)).wait()?)
    });
    results.iter().for_each(|result| assert_eq!(result, &input(root, elements)));
}

fn check_reduce<T: Sample>(ranks: usize, elements: usize, root: usize) {
    let results = on_ranks(ranks, |context, world| {
        Ok(context.reduce(world, root, input::<T>(context.rank(), elements)).wait()?)
    });
    let sums = reduced(ranks, elements, sum);
    for (p, result) in results.into_iter().enumerate() {
        assert_eq!(result, if p == root { sums.clone() } else { input(p, elements) }, "{ranks} ranks, root {root}");
    }
}

/// `each` elements per rank and chunk.
fn check_in_place<T: Sample>(ranks: usize, each: usize) {
    let n = ranks * each;
    let results = on_ranks(ranks, |context, world| {
        let own = context.rank() * each..(context.rank() + 1) * each;
        let mut buffer = vec![T::from_f64(-7.0); n];
        buffer[own].copy_from_slice(&input::<T>(context.rank(), each));
        let gathered = context.all_gather_in_place(world, buffer);
        let scattered = context.reduce_scatter_in_place(world, input::<T>(context.rank(), n));
        Ok([gathered.wait()?, scattered.wait()?])
    });
    let all = inputs::<T>(ranks, each).concat();
    let sums = reduced(ranks, n, sum);
    for (p, [gathered, scattered]) in results.into_iter().enumerate() {
        assert_eq!(gathered, all, "{ranks} ranks, {each} elements each");
        let own = p * each..(p + 1) * each;
        let mut expected = input(p, n);
        expected[own.clone()].copy_from_slice(&sums[own]);
        assert_eq!(scattered, expected, "{ranks} ranks, {each} elements each");
    }
}

#[test]
fn reduce_to_every_root() {
    for ranks in 1..=8 {
        for root in 0..ranks {
            for elements in [0, 1, 7, 131] {
                check_reduce::<f32>(ranks, elements, root);
            }
        }
    }
}

#[test]
fn in_place_in_all_group_sizes() {
    for ranks in 1..=8 {
        for each in [0, 1, 3, 37] {
            check_in_place::<f32>(ranks, each);
        }
    }
}

/// One member in place, the others not.
#[test]
fn both_forms_work_together() {
    for each in [3, 9_001] {
        let all: Vec<f32> = inputs(3, each).concat();
        let results = on_ranks(3, |context, world| {
            let own = input::<f32>(context.rank(), each);
            Ok(match context.rank() {
                1 => context.all_gather_in_place(world, [&all[..each], &own, &all[..each]].concat()).wait()?,
                _ => context.all_gather(world, own, vec![0.0; 3 * each]).wait()?.1,
            })
        });
        results.iter().for_each(|result| assert_eq!(*result, all));
    }
}

#[test]
fn all_group_sizes() {
    for ranks in 1..=16 {
        for elements in [0, 1, ranks - 1, 37] {
            check_all_reduce::<f32>(ranks, elements);
        }
        for each in [0, 1, 13] {
            check_chunked::<f32>(ranks, each);
        }
        check_broadcast::<f32>(ranks, 17, ranks / 2);
    }
}

/// Above the size from which every member does its part.
#[test]
fn large_buffers() {
    for ranks in [2, 3, 5, 16] {
        check_all_reduce::<f32>(ranks, 40_003);
        check_all_reduce::<f64>(ranks, 40_003);
        check_chunked::<f32>(ranks, 9_001);
        check_chunked::<f64>(ranks, 9_001);
        check_broadcast::<f64>(ranks, 40_003, ranks - 1);
        check_reduce::<f32>(ranks, 40_003, ranks - 1);
        check_in_place::<f64>(ranks, 9_001);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_sizes(ranks in 1usize..=9, elements in 0usize..6000, each in 0usize..3000, root in 0usize..9) {
        check_all_reduce::<f64>(ranks, elements);
        check_chunked::<f64>(ranks, each);
        check_broadcast::<f32>(ranks, elements, root % ranks);
        check_reduce::<f64>(ranks, elements, root % ranks);
        check_in_place::<f32>(ranks, each);
    }
}

#[test]
fn results_repeat_bit_for_bit() {
    for elements in [100, 50_000] {
        let run = || {
            on_ranks(4, |context, world| {
                let sum = context.all_reduce(world, Reduction::Sum, input::<f32>(context.rank(), elements)).wait()?;
                Ok(sum.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
            })
        };
        let first = run();
        assert!(first.iter().all(|bits| *bits == first[0]), "all ranks hold the same bits");
        (0..5).for_each(|_| assert_eq!(run(), first));
    }
}

#[test]
fn maximum_keeps_nan() {
    for elements in [3, 50_000] {
        for nan_rank in 0..3 {
            let results = on_ranks(3, |context, world| {
                let mut buffer = vec![context.rank() as f32; elements];
                if context.rank() == nan_rank {
                    buffer[1] = f32::NAN;
                }
                Ok(context.all_reduce(world, Reduction::Max, buffer).wait()?)
            });
            for result in results {
                assert_eq!(result[0], 2.0);
                assert!(result[1].is_nan());
            }
        }
    }
}

#[test]
fn barrier_holds_everyone_until_all_arrive() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let arrived = AtomicUsize::new(0);
    let seen = on_ranks(7, |context, world| {
        arrived.fetch_add(1, Ordering::SeqCst);
        context.barrier(world).wait()?;
        Ok(arrived.load(Ordering::SeqCst))
    });
    assert_eq!(seen, [7; 7]);
}

#[test]
fn no_ranks_do_nothing() {
    assert!(on_ranks(0, |_, _| Ok(())).is_empty());
}
