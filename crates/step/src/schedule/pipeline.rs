//! What a schedule is made for, and who sends messages to whom.

use quadrille_spec::{Axis, Layout, Schedule};

use super::{Action, Pass, ScheduleError};

/// What a schedule is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pipeline {
    /// Stages, `p`: pipeline ranks.
    pub stages: usize,
    /// Chunks of layers per stage, `v`; several only in the interleaved schedule.
    pub chunks: usize,
    /// Microbatches of a step, `m`.
    pub microbatches: usize,
    /// Microbatches that pass a chunk together, `N`; only the interleaved schedule reads it.
    pub group: usize,
}

impl Pipeline {
    /// What a layout's schedule is made for.
    pub fn of(layout: &Layout) -> Self {
        Self {
            stages: layout.grid.size(Axis::Pipe),
            chunks: layout.chunks,
            microbatches: layout.microbatches(),
            group: layout.microbatch_group,
        }
    }

    /// The global stage of a stage's chunk: `c p + r`.
    pub fn global_stage(&self, stage: usize, chunk: usize) -> usize {
        chunk * self.stages + stage
    }

    /// The stage and action whose message `action` of `stage` receives: the forward on the global stage before, or
    /// the backward on the one after. `None` if it needs no message.
    pub fn source(&self, stage: usize, action: Action) -> Option<(usize, Action)> {
        match action.pass {
            Pass::Forward => self.before(stage, action),
            Pass::Backward => self.after(stage, action),
            Pass::WeightGradient => None,
        }
    }

    /// The stage and action that receive the message of `action` of `stage`. `None` if it sends none.
    pub fn destination(&self, stage: usize, action: Action) -> Option<(usize, Action)> {
        match action.pass {
            Pass::Forward => self.after(stage, action),
            Pass::Backward => self.before(stage, action),
            Pass::WeightGradient => None,
        }
    }

    /// The same pass on the global stage before.
    fn before(&self, stage: usize, action: Action) -> Option<(usize, Action)> {
        let global = self.global_stage(stage, action.chunk).checked_sub(1)?;
        Some((global % self.stages, Action { chunk: global / self.stages, ..action }))
    }

    /// The same pass on the global stage after.
    fn after(&self, stage: usize, action: Action) -> Option<(usize, Action)> {
        let global = self.global_stage(stage, action.chunk) + 1;
        let chunk = global / self.stages;
        (chunk < self.chunks).then_some((global % self.stages, Action { chunk, ..action }))
    }

    /// The number of an action among all of the pipeline, below [`Self::slots`].
    pub(super) fn slot(&self, stage: usize, action: Action) -> usize {
        let pass = action.pass as usize;
        ((pass * self.microbatches + action.microbatch) * self.chunks + action.chunk) * self.stages + stage
    }

    /// Three passes for every microbatch, chunk and stage.
    pub(super) fn slots(&self) -> usize {
        3 * self.microbatches * self.chunks * self.stages
    }

    /// Refuses sizes of 0 and lists too long to be held.
    pub(super) fn check_sizes(&self) -> Result<(), ScheduleError> {
        let sizes = [("stages", self.stages), ("chunks", self.chunks), ("microbatches", self.microbatches)];
        let mut passes: usize = 3;
        for (field, value) in sizes {
            if value == 0 {
                return Err(invalid(field, value, "a pipeline has at least 1", "use 1 or more"));
            }
            passes = passes.saturating_mul(value);
            if passes > Layout::MOST_PASSES {
                let most = Layout::MOST_PASSES;
                let rule = format!("a schedule lists at most {most} passes, 3 * stages * chunks * microbatches");
                return Err(invalid(field, value, rule, "use fewer stages, chunks or microbatches"));
            }
        }
        Ok(())
    }

    /// Refuses what `schedule` cannot order.
    pub(super) fn check_legal(&self, schedule: Schedule) -> Result<(), ScheduleError> {
        let several = self.chunks > 1;
        if schedule != Schedule::Interleaved {
            let rule = format!("schedule {schedule} has one chunk per stage");
            let remedy = "use 1 chunk or the interleaved schedule";
            return if several { Err(invalid("chunks", self.chunks, rule, remedy)) } else { Ok(()) };
        }
        if several && self.stages == 1 {
            let rule = format!("{} chunks are interleaved over at least 2 stages", self.chunks);
            return Err(invalid("stages", self.stages, rule, "use 2 or more stages or 1 chunk"));
        }
        self.check_groups()
    }

    /// The interleaved schedule's groups, the last too, have at least a microbatch per stage: with fewer, stage 0 would
    /// come to a microbatch's next chunk before the last stage has done with the one before (Megatron-LM's rule).
    fn check_groups(&self) -> Result<(), ScheduleError> {
        let p = self.stages;
        let m = self.microbatches;
        let group = self.group;
        if m < p {
            let rule = format!("the interleaved schedule needs a microbatch for each of its {p} stages");
            return Err(invalid("microbatches", m, rule, format!("use {p} or more, or schedule 1f1b")));
        }
        let legal = |n: usize| n >= p && n <= m && (m.is_multiple_of(n) || m % n >= p);
        if legal(group) {
            return Ok(());
        }
        let rule = format!("groups of the {m} microbatches, the last too, have at least {p}, one per stage");
        let smallest = (p..=m).find(|n| legal(*n)).unwrap_or(m);
        Err(invalid("group", group, rule, format!("use {smallest}, the smallest, or {m}, the largest")))
    }
}

fn invalid(field: &'static str, value: usize, rule: impl Into<String>, remedy: impl Into<String>) -> ScheduleError {
    ScheduleError::Pipeline { field, value, rule: rule.into(), remedy: remedy.into() }
}
