//! Times of collectives on all ranks: one function runs a body as every rank and returns plain numbers by rank. Nothing
//! here prints.

use std::mem::take;
use std::str::FromStr;

use quadrille_comm::{Group, JobOptions, RankContext, Reduction, run_job};
use quadrille_engine::EngineError;
use quadrille_spec::{CollectiveKind, SpecError};
use quadrille_tensor::Buffer;

use crate::timing::{Fault, median, seconds};

/// The full buffer and a second one, through a collective and back.
pub type Buffers = [Buffer<f32>; 2];
/// How a collective runs.
pub type Run = fn(&RankContext, &Group, Buffers) -> Result<Buffers, Fault>;

/// A collective that is measured.
#[derive(Debug, Clone, Copy)]
pub struct Collective {
    /// Its kind.
    pub kind: CollectiveKind,
    /// Elements of its buffers, of those of the full buffer and of a rank's part of it.
    pub(super) lengths: fn(usize, usize) -> [usize; 2],
    /// How it runs.
    pub(super) run: Run,
}

impl FromStr for Collective {
    type Err = SpecError;

    fn from_str(name: &str) -> Result<Self, SpecError> {
        let known = || Self::ALL.map(|collective| collective.kind.name().to_owned()).to_vec();
        let unknown = || SpecError::Unknown { what: "collective", name: name.to_owned(), known: known() };
        Self::ALL.into_iter().find(|collective| collective.kind.name() == name).ok_or_else(unknown)
    }
}

impl Collective {
    /// All that can be measured.
    pub const ALL: [Self; 5] = [
        Self { kind: CollectiveKind::AllReduce, lengths: |full, _| [full, 0], run: all_reduce },
        Self { kind: CollectiveKind::AllGather, lengths: |full, part| [full, part], run: all_gather },
        Self { kind: CollectiveKind::ReduceScatter, lengths: |full, part| [full, part], run: reduce_scatter },
        Self { kind: CollectiveKind::Broadcast, lengths: |full, _| [full, 0], run: broadcast },
        Self { kind: CollectiveKind::AllToAll, lengths: |full, _| [full, full], run: all_to_all },
    ];
}

/// How many runs are measured, after one that warms up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// So many.
    Exactly(u32),
    /// As many as 0.25 seconds hold, 5 to 21: what is usual.
    Enough,
}

/// What the runs of one collective at one size may take together.
const ENOUGH_SECONDS: f64 = 0.25;

impl Runs {
    /// The number, when one run of the slowest rank takes so long.
    fn number(self, slowest: f64) -> u32 {
        match self {
            Self::Exactly(runs) => runs,
            Self::Enough => (ENOUGH_SECONDS / slowest).clamp(5.0, 21.0) as u32,
        }
    }
}

/// Seconds of every run on every rank, by rank, after a run that warms up; as many runs on all ranks. The buffers of these
/// lengths are touched at creation.
///
/// # Errors
/// The job failed.
pub fn times(options: &JobOptions, lengths: [usize; 2], runs: Runs, run: Run) -> Result<Vec<Vec<f64>>, EngineError> {
    let members: Vec<usize> = (0..options.ranks).collect();
    Ok(run_job(options, |context| {
        let world = context.group("world", &members)?;
        let mut buffers = lengths.map(Buffer::<f32>::without_pattern);
        let mut once = || -> Result<f64, Fault> {
            context.barrier(&world).wait()?;
            let mut result = Ok(Buffers::default());
            let taken = seconds(|| result = run(context, &world, take(&mut buffers)));
            buffers = result?;
            Ok(taken)
        };
        // Every rank has to do as many runs as the others.
        let slowest = context.all_reduce(&world, Reduction::Max, vec![once()?]).wait()?[0];
        (0..runs.number(slowest)).map(|_| once()).collect()
    })?)
}

/// Median over runs of the slowest rank's seconds, with what thread ranks bring.
///
/// # Errors
/// The job failed.
pub fn time(ranks: usize, lengths: [usize; 2], runs: u32, run: Run) -> Result<f64, EngineError> {
    Ok(median(slowest(&times(&JobOptions::new(ranks), lengths, Runs::Exactly(runs), run)?)))
}

/// The slowest rank's seconds in every run.
pub fn slowest(by_rank: &[Vec<f64>]) -> Vec<f64> {
    let runs = by_rank.first().map_or(0, Vec::len);
    (0..runs).map(|run| by_rank.iter().map(|times| times[run]).fold(0.0, f64::max)).collect()
}

/// The yardstick: one buffer into the other, without any other rank.
pub fn copy(_: &RankContext, _: &Group, [from, mut to]: Buffers) -> Result<Buffers, Fault> {
    to.copy_from_slice(&from);
    Ok([from, to])
}

/// Sums `full` in place.
pub fn all_reduce(context: &RankContext, group: &Group, [full, part]: Buffers) -> Result<Buffers, Fault> {
    Ok([context.all_reduce(group, Reduction::Sum, full).wait()?, part])
}

/// Gathers every `part` into `full`.
pub fn all_gather(context: &RankContext, group: &Group, [full, part]: Buffers) -> Result<Buffers, Fault> {
    let (part, full) = context.all_gather(group, part, full).wait()?;
    Ok([full, part])
}

/// Sums `full`, and leaves a share of it in `part`.
pub fn reduce_scatter(context: &RankContext, group: &Group, [full, part]: Buffers) -> Result<Buffers, Fault> {
    let (full, part) = context.reduce_scatter(group, full, part).wait()?;
    Ok([full, part])
}

/// Copies the first rank's buffer into everyone's.
pub fn broadcast(context: &RankContext, group: &Group, [full, rest]: Buffers) -> Result<Buffers, Fault> {
    Ok([context.broadcast(group, 0, full).wait()?, rest])
}

/// Sends every rank its part of the first buffer, into the second.
pub fn all_to_all(context: &RankContext, group: &Group, [from, to]: Buffers) -> Result<Buffers, Fault> {
    let (from, to) = context.all_to_all(group, from, to).wait()?;
    Ok([from, to])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_runs_as_time_allows() {
        let numbers = [1e-6, 0.25 / 7.5, 10.0].map(|slowest| Runs::Enough.number(slowest));
        assert_eq!(numbers, [21, 7, 5]);
        assert_eq!(Runs::Exactly(3).number(10.0), 3);
    }

    #[test]
    fn the_slowest_rank_counts_in_every_run() {
        assert_eq!(slowest(&[vec![1.0, 4.0], vec![3.0, 2.0]]), [3.0, 4.0]);
        assert_eq!(slowest(&[]), [0.0; 0]);
    }

    #[test]
    fn all_ranks_return_their_times() {
        for collective in Collective::ALL {
            let times = times(&JobOptions::new(3), (collective.lengths)(6, 2), Runs::Exactly(2), collective.run);
            let times = times.unwrap();
            assert!(times.len() == 3 && times.iter().all(|runs| runs.len() == 2), "{:?}", collective.kind);
        }
    }
}
