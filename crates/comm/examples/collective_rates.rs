//! Bus bandwidth of collectives between threads, beside a plain memory copy.
//!
//! Bus bandwidth is nccl-tests': for `n` bytes in `t` seconds on `G` ranks, all-reduce `2 (G-1)/G n/t`, all-gather and
//! reduce-scatter `(G-1)/G n/t`. Every rank works on its own buffers of full size, touched before. Best of the repetitions.
//!
//! `cargo run --release -p quadrille-comm --example collective_rates [repetitions]`

use std::error::Error;
use std::time::{Duration, Instant};

use quadrille_comm::{Group, JobFailure, JobOptions, RankContext, Reduction, run_ranks};

const MIB: usize = 1 << 20;
const SIZES: [usize; 3] = [MIB, 16 * MIB, 64 * MIB];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<(), JobFailure> {
    let repetitions = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(30);
    println!("{:<16}{:>6}{:>12}{:>12}{:>12}   GB/s", "", "ranks", "1 MiB", "16 MiB", "64 MiB");
    for threads in [1, 2] {
        let rates = SIZES.map(|bytes| copy_rate(threads, bytes, repetitions));
        print_row("copy", threads, rates);
    }
    for ranks in [2, 4] {
        for (name, share, collective) in collectives() {
            let mut rates = [0.0; 3];
            for (rate, bytes) in rates.iter_mut().zip(SIZES) {
                let time = best_time(ranks, repetitions, bytes, collective)?;
                *rate = share * (ranks - 1) as f64 / ranks as f64 * bytes as f64 / time / 1e9;
            }
            print_row(name, ranks, rates);
        }
        println!("{:<16}{ranks:>6}{:>9.1} us", "all-reduce 4 B", 1e6 * best_time(ranks, 400, 4, all_reduce)?);
    }
    Ok(())
}

/// One collective on two buffers (input, output or unused) of at most the full size; returns them.
type Run = fn(&RankContext, &Group, [Vec<f32>; 2]) -> Outcome<[Vec<f32>; 2]>;

/// Name, factor of `(G-1)/G n/t`, collective.
fn collectives() -> [(&'static str, f64, Run); 3] {
    [("all-reduce", 2.0, all_reduce), ("all-gather", 1.0, all_gather), ("reduce-scatter", 1.0, reduce_scatter)]
}

fn all_reduce(context: &RankContext, group: &Group, [full, part]: [Vec<f32>; 2]) -> Outcome<[Vec<f32>; 2]> {
    Ok([context.all_reduce(group, Reduction::Sum, full).wait()?, part])
}

fn all_gather(context: &RankContext, group: &Group, [full, part]: [Vec<f32>; 2]) -> Outcome<[Vec<f32>; 2]> {
    let (part, full) = context.all_gather(group, part, full).wait()?;
    Ok([full, part])
}

fn reduce_scatter(context: &RankContext, group: &Group, [full, part]: [Vec<f32>; 2]) -> Outcome<[Vec<f32>; 2]> {
    let (full, part) = context.reduce_scatter(group, full, part).wait()?;
    Ok([full, part])
}

/// Best time in seconds of a collective whose full buffer has `bytes`; the slowest rank's.
fn best_time(ranks: usize, repetitions: usize, bytes: usize, run: Run) -> Result<f64, JobFailure> {
    let bests = run_ranks(&JobOptions::new(ranks), |context| {
        let members: Vec<usize> = (0..ranks).collect();
        let world = context.group("world", &members)?;
        let elements = bytes / size_of::<f32>();
        let mut buffers = [vec![1.0; elements], vec![1.0; elements / ranks]];
        let mut times = Vec::with_capacity(repetitions);
        for _ in 0..repetitions {
            context.barrier(&world).wait()?;
            let start = Instant::now();
            buffers = run(context, &world, buffers)?;
            times.push(start.elapsed());
        }
        Ok(best(&times))
    })?;
    Ok(bests.into_iter().max().unwrap_or_default().as_secs_f64())
}

/// Bytes copied per second, in GB/s, by all threads together; each copies `bytes`.
fn copy_rate(threads: usize, bytes: usize, repetitions: usize) -> f64 {
    let bests: Vec<Duration> = std::thread::scope(|scope| {
        let copy = || {
            let from = vec![1u8; bytes];
            let mut to = vec![2u8; bytes];
            let mut times = Vec::with_capacity(repetitions);
            for _ in 0..repetitions {
                let start = Instant::now();
                to.copy_from_slice(&from);
                times.push(start.elapsed());
                std::hint::black_box(&mut to);
            }
            best(&times)
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(copy)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    bests.iter().map(|time| bytes as f64 / time.as_secs_f64() / 1e9).sum()
}

fn best(times: &[Duration]) -> Duration {
    times.iter().min().copied().unwrap_or_default()
}

fn print_row(name: &str, ranks: usize, rates: [f64; 3]) {
    println!("{name:<16}{ranks:>6}{:>12.1}{:>12.1}{:>12.1}", rates[0], rates[1], rates[2]);
}
