//! Times of collectives on all ranks: one function runs a body as every rank and returns plain numbers by rank. Nothing
//! here prints.

use std::mem::take;
use std::time::Instant;

use quadrille_comm::{JobOptions, Reduction, run_job};
use quadrille_engine::{EngineError, exchange, second_elements};
use quadrille_spec::{CollectiveKind, SpecError};
use quadrille_tensor::Buffer;

use crate::timing::{Fault, median};

/// What runs: a collective, or the yardstick.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// One buffer into the other, without any other rank.
    Copy,
    /// On all ranks.
    Collective(CollectiveKind),
}

impl Run {
    /// Elements of its two buffers, of those of the full buffer and of a rank's part of it.
    pub fn lengths(self, full: usize, part: usize) -> [usize; 2] {
        match self {
            Self::Copy => [full, full],
            Self::Collective(kind) => [full, second_elements(kind, full, part)],
        }
    }
}

/// Collectives that can be measured.
pub const KINDS: [CollectiveKind; 5] = [
    CollectiveKind::AllReduce,
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::Broadcast,
    CollectiveKind::AllToAll,
];

/// The one of them with this name.
///
/// # Errors
/// None has it.
pub fn kind(name: &str) -> Result<CollectiveKind, SpecError> {
    let known = || KINDS.map(|kind| kind.name().to_owned()).to_vec();
    let unknown = || SpecError::Unknown { what: "collective", name: name.to_owned(), known: known() };
    KINDS.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
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
            let start = Instant::now();
            let [full, second] = take(&mut buffers);
            buffers = match run {
                Run::Copy => copied(full, second),
                Run::Collective(kind) => exchange::<f32, _>(context, &world, kind, [full, second])?,
            };
            Ok(start.elapsed().as_secs_f64())
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

/// The yardstick.
fn copied(from: Buffer<f32>, mut to: Buffer<f32>) -> [Buffer<f32>; 2] {
    to.copy_from_slice(&from);
    [from, to]
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
        for kind in KINDS {
            let run = Run::Collective(kind);
            let times = times(&JobOptions::new(3), run.lengths(6, 2), Runs::Exactly(2), run);
            let times = times.unwrap();
            assert!(times.len() == 3 && times.iter().all(|runs| runs.len() == 2), "{kind:?}");
        }
    }
}
