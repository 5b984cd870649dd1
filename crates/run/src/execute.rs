//! The steps of a run, and what came of them.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use quadrille_engine::{EngineError, RunEvent, Samples, TrainOutcome, Validation};
use quadrille_step::StepProgram;
use signal_hook::consts::SIGTERM;

use crate::folder::SUMMARY;
use crate::tuned::Recorder;
use crate::{Prepared, RunError, Signals, TrainSummary};

/// Told what happens, in the first process where ranks are processes. [`ControlFlow::Break`] asks the run to end in good order, after this step or the next.
pub type OnEvent<'a> = &'a mut (dyn FnMut(&RunEvent) -> ControlFlow<()> + Send);

/// What came of a run. [`ended`](Self::ended) says whether all steps are done, [`check`](Self::check) whether they were as
/// predicted and all files are written.
#[derive(Debug)]
pub struct RunOutcome {
    /// Whether all steps are done.
    pub ended: Ended,
    /// The steps of this part of the run, and what its ranks have counted and taken.
    pub trained: TrainOutcome,
    /// What the run says at its end, as its folder keeps it; `None` in processes that are not the first.
    pub summary: Option<TrainSummary>,
    /// Why the trace or the file of tuned products, which are written last, is not there, if they were asked for.
    pub unwritten: Option<RunError>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All steps are done.
    Whole,
    /// It was asked to end before.
    Stopped {
        /// The last step that is done.
        step: u64,
        /// Steps that were to be done.
        of: u64,
        /// The signal that has come to this process; that it is to end, if one came to another process or nobody waits for any.
        signal: i32,
    },
}

impl RunOutcome {
    /// The outcome, unless the run has counted other than was predicted, or one of its last files could not be written.
    ///
    /// # Errors
    /// The first count that differs; why the file is not there.
    pub fn check(mut self) -> Result<Self, RunError> {
        if let Some(error) = self.unwritten.take() {
            return Err(error);
        }
        match self.trained.difference.clone() {
            Some(difference) => Err(RunError::Ledger(difference)),
            None => Ok(self),
        }
    }
}

impl Prepared {
    /// Takes the steps that are left, writes the run's records and, at the end, what it has to say.
    ///
    /// # Errors
    /// The first rank's failure; a step that cannot be applied; a record that cannot be written. What was recorded until then
    /// stays, and the run can be gone on with from its newest checkpoint.
    pub fn run(mut self, on_event: OnEvent) -> Result<RunOutcome, RunError> {
        let mut outputs = std::mem::take(&mut self.outputs);
        let trained = self.execute(&mut |event| {
            outputs.see(&event)?;
            if on_event(&event).is_break() {
                self.stop.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        let finished = outputs.finish();
        let trained = trained?;
        finished?;
        let ended = self.ended(&trained);
        if !self.processes.is_first() {
            return Ok(RunOutcome { ended, trained, summary: None, unwritten: None });
        }
        let summary = self.summary(&trained)?;
        if let Some(folder) = &self.beginning.folder {
            folder.write(SUMMARY, &summary)?;
        }
        let traced = outputs.write_trace(&self.program, &trained.ranks);
        let recorded = |recorder: Recorder| recorder.persist(&trained.ranks[0].matmuls);
        let unwritten = traced.and_then(|()| self.recorder.map_or(Ok(()), recorded)).err();
        Ok(RunOutcome { ended, trained, summary: Some(summary), unwritten })
    }

    fn execute(
        &self,
        on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
    ) -> Result<TrainOutcome, RunError> {
        let Self { program, options, source, about, spec, .. } = self;
        let global_batch = program.layout.global_batch as u64;
        let batch = |step: u64, first: usize, samples: Samples| {
            source.fill(step, about.samples + (step - 1 - about.step) * global_batch, first, samples)
        };
        let validation_batch = |step: u64, first: usize, samples: Samples| {
            source.fill_validation((step - 1) * global_batch + first as u64, samples)
        };
        let apart = source.validation_samples();
        let forward = apart.map(|_| StepProgram::evaluation(&program.model, &program.layout)).transpose()?;
        let most = spec.validation.batches.saturating_mul(global_batch);
        let validation = forward.as_ref().map(|program| Validation {
            program,
            every: spec.validation.every,
            samples: apart.flatten().map_or(most, |samples| samples.min(most)),
            batch: &validation_batch,
        });
        Ok(self.processes.device.train(program, options, &batch, validation.as_ref(), on_event)?)
    }

    fn ended(&self, trained: &TrainOutcome) -> Ended {
        let last = trained.records.last().map(|record| record.step);
        let of = self.spec.steps;
        match last {
            Some(step) if step < of => {
                Ended::Stopped { step, of, signal: self.signals.as_ref().map_or(SIGTERM, Signals::which) }
            }
            _ => Ended::Whole,
        }
    }

    /// What the run says at its end.
    fn summary(&self, trained: &TrainOutcome) -> Result<TrainSummary, RunError> {
        let Self { program, source, beginning, .. } = self;
        // A run that was killed behind its last step ends with the records that it has left.
        let left = match &beginning.folder {
            Some(folder) if trained.records.is_empty() => folder.steps()?,
            _ => Vec::new(),
        };
        Ok(TrainSummary::new(program, source.about(), self.floor(), &left, trained))
    }
}
