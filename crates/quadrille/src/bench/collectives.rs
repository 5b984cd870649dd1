//! `quadrille bench collectives`: collectives between thread ranks beside a plain copy.
//!
//! Letters: n bytes of the full buffer, t seconds, G ranks. As nccl-tests define them, the algorithm bandwidth is n/t,
//! the bus bandwidth of an all-reduce 2 (G-1)/G n/t, that of an all-gather or reduce-scatter (G-1)/G n/t.
//! <https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>

use std::error::Error;

use quadrille_comm::{Group, JobOptions, RankContext, Reduction, run_ranks};
use quadrille_engine::EngineError;
use quadrille_spec::CollectiveKind;
use quadrille_tensor::Buffer;
use serde::Serialize;

use crate::arguments::BenchCollectivesArguments;
use crate::bench::{filled, median, percent, seconds};
use crate::failure::Failure;
use crate::output::{bytes, print_json, print_text, table};
use crate::resources;

const MIB: u64 = 1 << 20;

#[derive(Serialize)]
struct Document {
    collectives: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    collective: &'static str,
    ranks: usize,
    /// The full buffer: input of a reduce-scatter, output of an all-gather. What its elements do not divide into
    /// equal parts for the ranks is left out.
    bytes: u64,
    /// Median over runs of the slowest rank's time.
    seconds: f64,
    algorithm_gb_s: f64,
    bus_gb_s: f64,
    /// What one thread copies, buffer to buffer of the same size, while as many threads as there are ranks do so.
    copy_gb_s: f64,
    /// What these threads copy together.
    copy_total_gb_s: f64,
    /// `bus_gb_s / copy_gb_s`.
    ratio: f64,
}

/// The full buffer and a second one, through a collective and back.
pub type Buffers = [Buffer<f32>; 2];
/// How a collective runs.
pub type Run = fn(&RankContext, &Group, Buffers) -> Result<Buffers, Box<dyn Error + Send + Sync>>;

/// A collective, its factor of (G-1)/G n/t, and how it runs.
const COLLECTIVES: [(CollectiveKind, f64, Run); 3] = [
    (CollectiveKind::AllReduce, 2.0, all_reduce),
    (CollectiveKind::AllGather, 1.0, all_gather),
    (CollectiveKind::ReduceScatter, 1.0, reduce_scatter),
];

/// Measures and reports.
pub fn run(arguments: &BenchCollectivesArguments) -> Result<(), Failure> {
    let ranks = arguments.ranks.iter().map(|ranks| usize::from(*ranks));
    let cases: Vec<(usize, u64)> =
        ranks.flat_map(|ranks| arguments.sizes.iter().map(move |mib| (ranks, u64::from(*mib) * MIB))).collect();
    cases.iter().try_for_each(|(ranks, size)| check_memory(*ranks, *size))?;
    let mut collectives = Vec::new();
    for (ranks, size) in cases {
        collectives.extend(measure(ranks, size, arguments.runs)?);
    }
    if arguments.json { print_json(&Document { collectives }) } else { print_text(&text(&collectives)) }
}

/// The copy needs two full buffers on every rank.
fn check_memory(ranks: usize, size: u64) -> Result<(), Failure> {
    let needed = 2 * ranks as u64 * size;
    match resources::proc_bytes("/proc/meminfo", "MemAvailable") {
        Some(available) if needed > available => Err(Failure::usage(format!(
            "--sizes {} on --ranks {ranks}: two buffers per rank take {}, but {} of memory are available; measure a \
             smaller size or fewer ranks",
            size / MIB,
            bytes(needed),
            bytes(available)
        ))),
        _ => Ok(()),
    }
}

/// Every collective at one size; the copy before and after them, of which the faster counts.
fn measure(ranks: usize, size: u64, runs: u32) -> Result<Vec<Measured>, EngineError> {
    let part = size as usize / size_of::<f32>() / ranks;
    let full = part * ranks;
    let n = (full * size_of::<f32>()) as f64;
    let before = time(ranks, [full, full], runs, copy)?;
    let times = COLLECTIVES.map(|(kind, _, run)| {
        let second = if kind == CollectiveKind::AllReduce { 0 } else { part };
        time(ranks, [full, second], runs, run)
    });
    let copy_gb_s = n / before.min(time(ranks, [full, full], runs, copy)?) / 1e9;
    let mut measured = Vec::new();
    for ((kind, factor, _), seconds) in COLLECTIVES.into_iter().zip(times) {
        let seconds = seconds?;
        let algorithm_gb_s = n / seconds / 1e9;
        let bus_gb_s = factor * (ranks - 1) as f64 / ranks as f64 * algorithm_gb_s;
        measured.push(Measured {
            collective: kind.name(),
            ranks,
            bytes: n as u64,
            seconds,
            algorithm_gb_s,
            bus_gb_s,
            copy_gb_s,
            copy_total_gb_s: ranks as f64 * copy_gb_s,
            ratio: bus_gb_s / copy_gb_s,
        });
    }
    Ok(measured)
}

/// Median over runs of the slowest rank's seconds, after one run that warms up. The buffers are touched at creation.
pub(super) fn time(ranks: usize, lengths: [usize; 2], runs: u32, run: Run) -> Result<f64, EngineError> {
    let by_rank = run_ranks(&JobOptions::new(ranks), |context| {
        let members: Vec<usize> = (0..ranks).collect();
        let world = context.group("world", &members)?;
        let mut buffers = lengths.map(filled::<f32>);
        let mut times = Vec::new();
        for _ in 0..=runs {
            context.barrier(&world).wait()?;
            let mut result = Ok(Buffers::default());
            times.push(seconds(|| result = run(context, &world, std::mem::take(&mut buffers))));
            buffers = result?;
        }
        Ok(times)
    })?;
    let slowest = |run: usize| by_rank.iter().map(|times| times[run]).fold(0.0, f64::max);
    Ok(median((1..=runs as usize).map(slowest).collect()))
}

fn copy(_: &RankContext, _: &Group, [from, mut to]: Buffers) -> Result<Buffers, Box<dyn Error + Send + Sync>> {
    to.copy_from_slice(&from);
    Ok([from, to])
}

/// Sums `full` in place.
pub fn all_reduce(
    context: &RankContext,
    group: &Group,
    [full, part]: Buffers,
) -> Result<Buffers, Box<dyn Error + Send + Sync>> {
    Ok([context.all_reduce(group, Reduction::Sum, full).wait()?, part])
}

/// Gathers every `part` into `full`.
pub fn all_gather(
    context: &RankContext,
    group: &Group,
    [full, part]: Buffers,
) -> Result<Buffers, Box<dyn Error + Send + Sync>> {
    let (part, full) = context.all_gather(group, part, full).wait()?;
    Ok([full, part])
}

/// Sums `full`, and leaves a share of it in `part`.
pub fn reduce_scatter(
    context: &RankContext,
    group: &Group,
    [full, part]: Buffers,
) -> Result<Buffers, Box<dyn Error + Send + Sync>> {
    let (full, part) = context.reduce_scatter(group, full, part).wait()?;
    Ok([full, part])
}

fn text(measured: &[Measured]) -> String {
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|row| {
            let rates = [row.algorithm_gb_s, row.bus_gb_s, row.copy_gb_s].map(|rate| format!("{rate:.1}"));
            let time = format!("{:.3}", 1e3 * row.seconds);
            [row.collective.to_owned(), row.ranks.to_string(), bytes(row.bytes), time]
                .into_iter()
                .chain(rates)
                .chain([percent(row.ratio)])
                .collect()
        })
        .collect();
    let header = ["collective", "ranks", "size", "ms", "algorithm GB/s", "bus GB/s", "copy GB/s", "bus / copy"];
    table(&header, &rows)
}
