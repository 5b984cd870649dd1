//! Rates of collectives between processes, by algorithm, and the round trip of a message.
//!
//! Bus bandwidth is nccl-tests', see `collective_rates`. Ranks meet before every repetition; rank 0's times.
//!
//! `cargo build --release -p quadrille-comm-mpi --features mpi --example process_rates`, then
//! `mpirun -n 4 target/release/examples/process_rates [MiB] [repetitions]`

use std::error::Error;
use std::time::Instant;

use quadrille_comm::{Group, JobOptions, RankContext, Reduction, World, run_job};
use quadrille_spec::{Algorithm, Choice, Routing};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One collective on a buffer of the full size; gives it back.
type Run = fn(&RankContext, &Group, Vec<f32>) -> Outcome<Vec<f32>>;

const COLLECTIVES: [(&str, f64, Run); 3] =
    [("all-reduce", 2.0, all_reduce), ("all-gather", 1.0, all_gather), ("reduce-scatter", 1.0, reduce_scatter)];

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let bytes = numbers.next().unwrap_or(16) << 20;
    let repetitions = numbers.next().unwrap_or(21).max(1);
    let world = quadrille_comm_mpi::initialize()?;
    let outcome = measure(&world, bytes, repetitions).and_then(|()| Ok(world.finish()?));
    if let Err(error) = outcome {
        if world.reports(&error) {
            eprintln!("error: {error}");
        }
        world.abandon(1)
    }
    Ok(())
}

fn measure(world: &World, bytes: usize, repetitions: usize) -> Result<(), Box<dyn Error>> {
    let ranks = world.size();
    let print = |line: String| {
        if world.rank() == 0 {
            println!("{line}");
        }
    };
    print(format!("{ranks} ranks, {} MiB", bytes >> 20));
    for algorithm in Algorithm::ALL {
        let routing =
            Routing { choice: Choice::Always(algorithm), nodes: world.nodes().clone(), ..Routing::native(ranks) };
        let options = JobOptions { world: Some(world.clone()), routing, ..JobOptions::new(ranks) };
        for (name, share, run) in COLLECTIVES {
            let seconds = run_job(&options, |context| times(context, bytes / size_of::<f32>(), repetitions, run))?;
            let (best, median) = best_and_median(&seconds[0]);
            let rate = |seconds: f64| share * (ranks - 1) as f64 / ranks as f64 * bytes as f64 / seconds / 1e9;
            print(format!(
                "{name:<16}{:<14}{:>9.3} ms best{:>9.3} median{:>8.2} GB/s best{:>7.2} median",
                algorithm.name(),
                1e3 * best,
                1e3 * median,
                rate(best),
                rate(median)
            ));
        }
        let seconds = run_job(&options, |context| times(context, 1, 500, all_reduce))?;
        let (best, median) = best_and_median(&seconds[0]);
        print(format!(
            "all-reduce 4 B  {:<14}{:>9.1} us best{:>9.1} median",
            algorithm.name(),
            1e6 * best,
            1e6 * median
        ));
    }
    let options = JobOptions { world: Some(world.clone()), ..JobOptions::new(ranks) };
    let (best, median) = best_and_median(&run_job(&options, |context| round_trips(context, 1000))?[0]);
    print(format!("round trip of a message of 4 B{:>9.1} us best{:>9.1} median", 1e6 * best, 1e6 * median));
    Ok(())
}

fn best_and_median(seconds: &[f64]) -> (f64, f64) {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}

fn times(context: &RankContext, elements: usize, repetitions: usize, run: Run) -> Outcome<Vec<f64>> {
    let group = context.group("world", &(0..context.ranks()).collect::<Vec<_>>())?;
    let mut buffer = run(context, &group, vec![1.0; elements])?;
    let mut seconds = Vec::new();
    for _ in 0..repetitions {
        context.barrier(&group).wait()?;
        let start = Instant::now();
        buffer = run(context, &group, buffer)?;
        seconds.push(start.elapsed().as_secs_f64());
        buffer.fill(1.0);
    }
    Ok(seconds)
}

fn all_reduce(context: &RankContext, group: &Group, buffer: Vec<f32>) -> Outcome<Vec<f32>> {
    Ok(context.all_reduce(group, Reduction::Sum, buffer).wait()?)
}

fn all_gather(context: &RankContext, group: &Group, buffer: Vec<f32>) -> Outcome<Vec<f32>> {
    Ok(context.all_gather_in_place(group, buffer).wait()?)
}

fn reduce_scatter(context: &RankContext, group: &Group, buffer: Vec<f32>) -> Outcome<Vec<f32>> {
    Ok(context.reduce_scatter_in_place(group, buffer).wait()?)
}

/// Between the first and the last rank; the others look on.
fn round_trips(context: &RankContext, repetitions: usize) -> Outcome<Vec<f64>> {
    let group = context.group("world", &(0..context.ranks()).collect::<Vec<_>>())?;
    let last = context.ranks() - 1;
    let mut seconds = vec![0.0; repetitions];
    if last > 0 && context.rank() == 0 {
        for (number, seconds) in seconds.iter_mut().enumerate() {
            let start = Instant::now();
            context.send(&group, last, 0, vec![number as f32]).wait()?;
            let came = context.receive(&group, last, 0, vec![0f32]).wait()?;
            *seconds = start.elapsed().as_secs_f64();
            assert_eq!(came, [number as f32], "it comes back");
        }
    } else if last > 0 && context.rank() == last {
        for _ in 0..repetitions {
            let came = context.receive(&group, 0, 0, vec![0f32]).wait()?;
            context.send(&group, 0, 0, came).wait()?;
        }
    }
    context.barrier(&group).wait()?;
    Ok(seconds)
}
