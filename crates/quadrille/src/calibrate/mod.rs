//! `quadrille calibrate`: a cluster file from what this machine, or another's log, says.

pub mod arguments;
mod cases;
mod collectives;
mod device;
mod file;
mod import;
mod measure;
mod operations;
mod ranks;
mod report;
mod statistics;
mod tiers;

use std::time::Instant;

use quadrille_comm::{RankContext, World};
use quadrille_engine::{Hyper, TrainOptions};
use quadrille_run::resources;
use quadrille_spec::{Algorithm, Calibration, Cluster, ElementType, MeasuredCollective, MeasuredOperation};

use self::arguments::CalibrateArguments;
use self::cases::Case;
use self::statistics::Runs;
use crate::bench::calibration::operation_latency;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::settings::Defaults;
use crate::{files, settings};

/// Numbers in each operand of element-wise work out of cache: 64 MiB, fewer where memory is short.
const STREAMED: usize = 16 << 20;
/// Operands of a streaming update, and as much again for what else runs.
const STREAMED_OPERANDS: u64 = 8;
/// Steps of the tiny model whose operations say what an operation takes by itself.
const STEPS: u64 = 50;

/// How to measure.
#[derive(Debug, Clone)]
pub struct Setup {
    ranks: usize,
    per_node: usize,
    threads: usize,
    runs: usize,
    quick: bool,
    /// Cores and the ranks that share them, where most ranks share a core: the same numbers on all ranks.
    cores: usize,
    ranks_here: usize,
    /// Numbers in each operand of element-wise work out of cache.
    streamed: usize,
    /// Bytes of memory of a rank.
    memory: u64,
    /// Where ranks are processes.
    world: Option<World>,
}

impl Setup {
    /// Of the flags, held against this machine and, where ranks are processes, against what was started.
    fn new(arguments: &CalibrateArguments, launch: &Launch) -> Result<Self, Failure> {
        let cores = settings::cores();
        let usual = Defaults { ranks: cores.clamp(2, 512), ..Defaults::USUAL };
        let Defaults { ranks: started, per_node: placed, .. } = launch.defaults(&usual)?;
        let ranks = arguments.ranks.map_or(started, usize::from);
        launch.check_ranks(ranks)?;
        let per_node = arguments.per_node.map(usize::from).or(placed).unwrap_or(ranks);
        if placed.is_some_and(|placed| placed != per_node) {
            return Err(Failure::usage(format!(
                "--per-node {per_node}: the launcher put {} ranks on a node; leave it out",
                placed.unwrap_or_default()
            )));
        }
        if ranks < 2 || per_node > ranks || !ranks.is_multiple_of(per_node) {
            return Err(Failure::usage(format!(
                "--per-node {per_node}: nodes are full of ranks, and there are {ranks}; use a divisor of --ranks, and two \
                 ranks at least"
            )));
        }
        let runs = arguments.runs.map_or(if arguments.quick { 3 } else { 7 }, usize::from);
        let (threads, quick) = (usize::from(arguments.threads), arguments.quick);
        let (ranks_here, world) = (launch.ranks_here(ranks), launch.world.clone());
        let setup = Self { ranks, per_node, threads, runs, quick, cores, ranks_here, streamed: 0, memory: 0, world };
        setup.agreed()
    }

    /// With what the worst placed ranks have: all of them measure the same, equally often.
    fn agreed(self) -> Result<Self, Failure> {
        let share = |_: &RankContext| {
            let available = resources::proc_bytes("/proc/meminfo", "MemAvailable");
            let rule = "cannot tell how much memory is free: /proc/meminfo does not say MemAvailable";
            Ok((available.ok_or(rule)? / self.ranks_here as u64, self.ranks_here, self.cores))
        };
        let shares = ranks::on_ranks(&self, Algorithm::Native, share)?;
        let memory = shares.iter().map(|(memory, ..)| *memory).min().unwrap_or(0);
        let (ranks_here, cores) = most_crowded(&shares).unwrap_or((self.ranks_here, self.cores));
        let fitting = memory / (STREAMED_OPERANDS * size_of::<f32>() as u64);
        let streamed = fitting.min(STREAMED as u64) as usize / 64 * 64;
        if streamed < STREAMED / 16 {
            return Err(Failure::usage(format!(
                "--ranks {}: {memory} bytes of memory are free for each, too few to measure its bandwidth; use fewer",
                self.ranks
            )));
        }
        Ok(Self { streamed, memory, ranks_here, cores, ..self })
    }

    /// How collectives are carried out; two levels need several nodes of several ranks.
    fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms = vec![Algorithm::Native, Algorithm::Ring, Algorithm::Recursive];
        if self.per_node > 1 && self.per_node < self.ranks {
            algorithms.push(Algorithm::Hierarchical);
        }
        algorithms
    }

    /// Threads that share a core, at least 1; where most do.
    fn crowding(&self) -> f64 {
        ((self.ranks_here * self.threads) as f64 / self.cores as f64).max(1.0)
    }

    /// Where the ranks are, in words.
    fn place(&self) -> String {
        let (ranks, nodes) = (self.ranks, self.ranks / self.per_node);
        match (nodes, &self.world) {
            (1, _) => format!("{ranks} ranks of this machine"),
            (_, Some(_)) => format!("{ranks} ranks on {nodes} nodes"),
            // Threads, for which --per-node says so.
            (_, None) => format!("{ranks} ranks of this machine, taken as {nodes} nodes"),
        }
    }
}

/// Ranks of a machine and the cores that they share, where most share one; of what every rank says of itself: bytes, ranks,
/// cores.
fn most_crowded(shares: &[(u64, usize, usize)]) -> Option<(usize, usize)> {
    // Of a / b < c / d, without rounding.
    let fewer = |a: &(usize, usize), b: &(usize, usize)| (a.0 * b.1).cmp(&(b.0 * a.1));
    shares.iter().map(|(_, ranks, cores)| (*ranks, *cores)).max_by(fewer)
}

/// A case with its runs.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    case: Case,
    runs: Runs,
}

/// Everything that was measured.
#[derive(Debug, Clone)]
pub struct Measurements {
    setup: Setup,
    cases: Vec<Measured>,
    /// Seconds that an operation of the engine takes beside its work.
    launch_seconds: f64,
    /// How long all of it took.
    seconds: f64,
}

/// Measures, or reads logs, and writes the cluster.
pub fn run(arguments: &CalibrateArguments, launch: &Launch) -> Result<(), Failure> {
    if arguments.import.any() {
        // One reads for all.
        return if launch.is_first() { import::run(arguments) } else { Ok(()) };
    }
    if arguments.import.cluster.is_some() {
        return Err(Failure::usage(
            "--cluster: it is what logs are read into; give --from-nccl-tests, --from-osu or --from-step, or leave it out",
        ));
    }
    // Measuring takes its time: a file that cannot be written is found before.
    if launch.is_first() {
        files::check_writable("--out", &arguments.out)?;
    }
    let measured = Measurements::take(Setup::new(arguments, launch)?)?;
    if !launch.is_first() {
        return Ok(());
    }
    let tiers = tiers::fitted(&measured)?;
    let cluster = measured.cluster(&tiers)?;
    file::write(&arguments.out, &cluster)?;
    report::print(arguments, &measured, &tiers, &cluster)
}

impl Measurements {
    fn take(setup: Setup) -> Result<Self, Failure> {
        let start = Instant::now();
        let mut measured = Vec::new();
        for algorithm in setup.algorithms() {
            let cases = Case::all(&setup, algorithm);
            let by_rank = ranks::on_ranks(&setup, algorithm, |context| measure::measure(context, &setup, &cases))?;
            measured.extend(cases.iter().enumerate().map(|(at, case)| {
                let runs: Vec<&[f64]> = by_rank.iter().map(|cases| cases[at].as_slice()).collect();
                Measured { case: *case, runs: Runs::slowest(&runs) }
            }));
        }
        let launch_seconds = setup.crowding() * operation_latency(setup.ranks, &options(&setup))?;
        Ok(Self { setup, cases: measured, launch_seconds, seconds: start.elapsed().as_secs_f64() })
    }

    /// The cluster that this machine is.
    fn cluster(&self, tiers: &tiers::Fitted) -> Result<Cluster, Failure> {
        let Setup { ranks, per_node, threads, .. } = self.setup;
        let place = self.setup.place();
        let device = device::of(self)?;
        Ok(Cluster {
            name: "calibrated".to_owned(),
            source: format!(
                "measured by quadrille calibrate on {place}, {per_node} to a node, {threads} threads \
                 each; tiers and group bandwidths are fitted to the collectives of section calibration"
            ),
            device_memory: Some(device.memory),
            device: Some(device),
            tiers: tiers.tiers.clone(),
            network: tiers.network(per_node, ranks),
            intra_node_bandwidth: tiers.innermost_bandwidth(),
            group_bandwidths: tiers::group_bandwidths(self),
            calibration: Some(self.section()),
        })
    }

    fn section(&self) -> Calibration {
        let Setup { ranks, per_node, threads, runs, .. } = self.setup;
        let collectives = self.cases.iter().filter_map(|Measured { case, runs }| match *case {
            Case::Collective { kind, algorithm, group, bytes } => Some(MeasuredCollective {
                collective: kind,
                algorithm,
                inner: group.inner,
                group: group.size,
                bytes,
                seconds: runs.seconds,
                spread: runs.spread,
            }),
            _ => None,
        });
        let operations = self.cases.iter().filter(|measured| !matches!(measured.case, Case::Collective { .. }));
        let operations = operations.map(|Measured { case, runs }| {
            let (work, unit) = case.work();
            MeasuredOperation {
                operation: case.name(),
                dtype: case.dtype(),
                shape: case.shape(),
                rate: work / runs.seconds,
                unit,
                spread: runs.spread,
            }
        });
        let dtype = ElementType::F32;
        let (collectives, operations) = (collectives.collect(), operations.collect());
        Calibration { ranks, per_node, threads, runs, dtype, collectives, operations }
    }
}

/// Of the steps that say what an operation takes by itself.
fn options(setup: &Setup) -> TrainOptions {
    TrainOptions {
        threads: setup.threads,
        world: setup.world.clone(),
        ..TrainOptions::new(STEPS + 1, Hyper::default(), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(ranks: usize, per_node: usize, world: Option<World>) -> Setup {
        let (threads, runs, quick, streamed) = (1, 1, true, STREAMED);
        Setup { ranks, per_node, threads, runs, quick, cores: 2, ranks_here: 2, streamed, memory: 1 << 30, world }
    }

    #[test]
    fn all_ranks_take_what_the_most_crowded_has() {
        // 4 ranks on 8 cores, 3 on 2, 2 on 2.
        assert_eq!(most_crowded(&[(1, 4, 8), (9, 3, 2), (1, 2, 2)]), Some((3, 2)));
        assert_eq!(most_crowded(&[]), None);
    }

    #[test]
    fn every_rank_agrees_on_a_share() {
        let agreed = Setup { streamed: 0, memory: 0, ..setup(2, 2, None) }.agreed().unwrap();
        assert_eq!((agreed.ranks_here, agreed.cores, agreed.crowding()), (2, 2, 1.0));
        assert!(agreed.memory > 0 && agreed.streamed > 0);
    }

    #[test]
    fn nodes_are_named_where_there_are_several() {
        assert_eq!(setup(4, 4, None).place(), "4 ranks of this machine");
        assert_eq!(setup(4, 2, None).place(), "4 ranks of this machine, taken as 2 nodes");
    }
}
