//! How long each case takes on a rank, while all ranks do the same.

use std::time::Instant;

use half::{bf16, f16};
use quadrille_comm::{Group, RankContext, Reduction};
use quadrille_spec::ElementType;
use quadrille_tensor::Pool;

use super::cases::Case;
use super::{CalibrationSpec, collectives, operations};
use crate::timing::Fault;

/// Seconds of a run at least: far above the clock's resolution.
const WINDOW: f64 = 2e-3;
/// Where ranks share cores, several of the system's time slices: a rank that is not interrupted looks as fast as if it
/// had a core for itself.
const SHARED_WINDOW: f64 = 8e-3;
/// Runs are at most this many repetitions.
const MOST_REPETITIONS: f64 = 1e6;

/// Seconds of every case in every run; the first rank tells which one begins.
pub fn measure(
    context: &RankContext,
    spec: &CalibrationSpec,
    cases: &[Case],
    begins: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Vec<f64>>, Fault> {
    let everyone: Vec<usize> = (0..spec.ranks).collect();
    let window = if spec.crowding() > 1.0 { SHARED_WINDOW } else { WINDOW };
    let clock = Clock { context, world: context.group("world", &everyone)?, runs: spec.runs, window };
    let pool = Pool::new(spec.threads);
    let time = |(at, case)| {
        if context.rank() == 0 {
            begins(at);
        }
        time(case, &clock, &pool)
    };
    cases.iter().enumerate().map(time).collect()
}

fn time(case: &Case, clock: &Clock, pool: &Pool) -> Result<Vec<f64>, Fault> {
    match *case {
        Case::Product { layout, dtype: ElementType::F32, shape } => {
            clock.repeat(operations::product::<f32>(pool, layout, shape))
        }
        Case::Product { layout, dtype: ElementType::F64, shape } => {
            clock.repeat(operations::product::<f64>(pool, layout, shape))
        }
        Case::Product { layout, dtype: ElementType::Bf16, shape } => {
            clock.repeat(operations::product::<bf16>(pool, layout, shape))
        }
        Case::Product { layout, dtype: ElementType::F16, shape } => {
            clock.repeat(operations::product::<f16>(pool, layout, shape))
        }
        Case::Attention { backward, shape } => clock.repeat(operations::attention(pool, backward, shape)),
        Case::Sweep { sweep, elements } => clock.repeat(operations::sweep(pool, sweep, elements)),
        Case::Collective { kind, group, bytes, .. } => collectives::time(clock, kind, group, bytes as usize),
    }
}

/// Times repetitions of a piece of work, begun together by all ranks.
pub struct Clock<'a> {
    /// The rank.
    pub context: &'a RankContext,
    /// All ranks.
    world: Group,
    runs: usize,
    window: f64,
}

impl Clock<'_> {
    /// As [`try_repeat`](Self::try_repeat), for work that cannot fail.
    fn repeat(&self, mut work: impl FnMut()) -> Result<Vec<f64>, Fault> {
        self.try_repeat(|| {
            work();
            Ok(())
        })
    }

    /// Mean seconds of the work in every run. All ranks repeat it equally often, so that a run has about the window's
    /// length on the slowest.
    pub fn try_repeat(&self, mut work: impl FnMut() -> Result<(), Fault>) -> Result<Vec<f64>, Fault> {
        work()?;
        let once = self.run(1, &mut work)?.min(self.run(1, &mut work)?);
        let slowest = self.context.all_reduce(&self.world, Reduction::Max, vec![once]).wait()?[0];
        let repetitions = (self.window / slowest).ceil().clamp(1.0, MOST_REPETITIONS) as usize;
        (0..self.runs).map(|_| self.run(repetitions, &mut work)).collect()
    }

    fn run(&self, repetitions: usize, work: &mut impl FnMut() -> Result<(), Fault>) -> Result<f64, Fault> {
        self.context.barrier(&self.world).wait()?;
        let start = Instant::now();
        for _ in 0..repetitions {
            work()?;
        }
        Ok(start.elapsed().as_secs_f64() / repetitions as f64)
    }
}
