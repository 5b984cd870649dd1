//! How long each case takes on a rank, while all ranks do the same.
//!
//! Seconds are those of the host's clock: from when all ranks begin a run of repetitions until the last of them is done, which on a
//! device the host waits for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

use quadrille_comm::{Group, RankContext, Reduction};
use quadrille_cost::native::RankGroup;
use quadrille_engine::{EngineError, Work, Workbench};
use quadrille_spec::{CollectiveKind, ElementType};

use super::Setup;
use super::cases::Case;
use crate::timing::Fault;

/// Seconds of a run at least: far above the clock's resolution.
const WINDOW: f64 = 2e-3;
/// Where ranks share cores or a device, several of the system's time slices: a rank that is not interrupted looks as fast as
/// if it had a core for itself.
const SHARED_WINDOW: f64 = 8e-3;
/// Runs are at most this many repetitions.
const MOST_REPETITIONS: f64 = 1e6;

/// Seconds of every case in every run; the first rank tells which one begins.
pub fn measure(
    context: &RankContext,
    setup: &Setup,
    cases: &[Case],
    begins: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Vec<f64>>, Fault> {
    let spec = &setup.spec;
    let everyone: Vec<usize> = (0..spec.ranks).collect();
    let window = if setup.crowding() > 1.0 { SHARED_WINDOW } else { WINDOW };
    let clock = Clock { context, world: context.group("world", &everyone)?, runs: spec.runs, window };
    // One for each type, opened when it is needed first.
    let mut benches: HashMap<ElementType, Box<dyn Workbench + '_>> = HashMap::new();
    let mut runs = Vec::with_capacity(cases.len());
    for (at, case) in cases.iter().enumerate() {
        if context.rank() == 0 {
            begins(at);
        }
        let dtype = case.dtype();
        let bench = match benches.entry(dtype) {
            Entry::Occupied(opened) => opened.into_mut(),
            Entry::Vacant(new) => new.insert(spec.device.workbench(dtype, context, spec.threads)?),
        };
        runs.push(time(&clock, &**bench, case)?);
    }
    Ok(runs)
}

fn time(clock: &Clock, bench: &dyn Workbench, case: &Case) -> Result<Vec<f64>, Fault> {
    let mut prepared = bench.prepare(&work(clock.context, case)?)?;
    let mut runs = clock.repeat(|times| prepared.repeat(times))?;
    if let Case::Collective { kind: CollectiveKind::Send, .. } = case {
        // One way of two.
        runs.iter_mut().for_each(|seconds| *seconds /= 2.0);
    }
    Ok(runs)
}

/// A case as the work of this rank.
fn work(context: &RankContext, case: &Case) -> Result<Work, Fault> {
    Ok(match *case {
        Case::Product { layout, shape, .. } => Work::Product { layout, shape },
        Case::Attention { backward, shape, .. } => Work::Attention { backward, shape },
        Case::Sweep { sweep, elements, .. } => Work::Sweep { sweep, elements },
        Case::HostCopy { bytes } => Work::HostCopy { bytes },
        Case::Collective { kind, group, bytes, .. } => {
            let name = format!("{} apart", group.inner);
            let group = context.group(&name, &members(group, context.rank()))?;
            Work::Collective { kind, group, bytes: bytes as usize }
        }
    })
}

/// The ranks of the group that holds `rank`.
fn members(group: RankGroup, rank: usize) -> Vec<usize> {
    let extent = group.inner * group.size;
    let first = rank / extent * extent + rank % group.inner;
    (0..group.size).map(|member| first + member * group.inner).collect()
}

/// Times repetitions of a piece of work, begun together by all ranks.
struct Clock<'a> {
    /// The rank.
    context: &'a RankContext,
    /// All ranks.
    world: Group,
    runs: usize,
    window: f64,
}

impl Clock<'_> {
    /// Mean seconds of the work in every run. All ranks repeat it equally often, so that a run has about the window's
    /// length on the slowest.
    fn repeat(&self, mut work: impl FnMut(usize) -> Result<(), EngineError>) -> Result<Vec<f64>, Fault> {
        work(1)?;
        let once = self.run(1, &mut work)?.min(self.run(1, &mut work)?);
        let slowest = self.context.all_reduce(&self.world, Reduction::Max, vec![once]).wait()?[0];
        let repetitions = (self.window / slowest).ceil().clamp(1.0, MOST_REPETITIONS) as usize;
        (0..self.runs).map(|_| self.run(repetitions, &mut work)).collect()
    }

    fn run(&self, repetitions: usize, work: &mut impl FnMut(usize) -> Result<(), EngineError>) -> Result<f64, Fault> {
        self.context.barrier(&self.world).wait()?;
        let start = Instant::now();
        work(repetitions)?;
        Ok(start.elapsed().as_secs_f64() / repetitions as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_their_group_apart() {
        let group = RankGroup { inner: 2, size: 2, ranks: 8 };
        assert_eq!([members(group, 0), members(group, 3), members(group, 4)], [[0, 2], [1, 3], [4, 6]]);
        assert_eq!(members(RankGroup { inner: 1, size: 8, ranks: 8 }, 5), (0..8).collect::<Vec<_>>());
    }
}
