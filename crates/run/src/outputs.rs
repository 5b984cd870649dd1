//! What a run writes while it goes: the records of its folder, the log and the trace that were asked for.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use quadrille_engine::{EngineError, RankReport, RunEvent, StepRecord};
use quadrille_step::StepProgram;

use crate::folder::{Event, Lines, Records, continued_log, line};
use crate::trace::{create_trace, measured, write_trace};
use crate::{OutputSpec, Refusal, RunError};

/// Files that are open. Only the first process has any.
#[derive(Default)]
pub(crate) struct Outputs {
    log: Option<Lines>,
    trace: Option<(PathBuf, File)>,
    /// Those of the run's folder.
    pub(crate) records: Option<Records>,
    /// The step that is done.
    at: u64,
}

impl Outputs {
    /// Opens what is to be written; a log that is gone on with keeps its lines up to step `kept`.
    pub(crate) fn open(spec: &OutputSpec, done: u64, kept: Option<u64>) -> Result<Self, RunError> {
        let log = spec.log.as_deref().map(|path| match kept {
            Some(step) => continued_log(path, step),
            None => Lines::create(path)
                .map_err(|error| Refusal::new(format!("cannot write the log {}: {error}", path.display())).into()),
        });
        let trace = spec.trace.as_ref().map(|path| Ok::<_, RunError>((path.clone(), create_trace(path)?)));
        Ok(Self { log: log.transpose()?, trace: trace.transpose()?, records: None, at: done })
    }

    /// Takes in what happened.
    pub(crate) fn see(&mut self, happened: &RunEvent) -> Result<(), EngineError> {
        if let RunEvent::Step(record) = happened {
            self.step(record)?;
        }
        match (Event::of(happened, self.at), &mut self.records) {
            (Some(event), Some(records)) => records.event(&event).map_err(unwritten),
            _ => Ok(()),
        }
    }

    fn step(&mut self, record: &StepRecord) -> Result<(), EngineError> {
        self.at = record.step;
        if let Some(log) = &mut self.log {
            log.append(&line(record)).map_err(|source| unwritten((log.path().to_owned(), source)))?;
        }
        self.records.as_mut().map_or(Ok(()), |records| records.step(record).map_err(unwritten))
    }

    /// Writes what has waited for space on the disk.
    ///
    /// # Errors
    /// There is still none.
    pub(crate) fn finish(&mut self) -> Result<(), RunError> {
        let flushed = self.records.as_mut().map_or(Ok(()), |records| records.flush().map_err(unwritten));
        Ok(flushed?)
    }

    /// Writes the trace. A run that was stopped early has none of its last step: what the file holds stays.
    pub(crate) fn write_trace(&mut self, program: &StepProgram, ranks: &[RankReport]) -> Result<(), RunError> {
        match self.trace.take() {
            Some((path, file)) if ranks.iter().all(|rank| rank.trace.is_some()) => {
                write_trace(&path, file, &measured(program, ranks))
            }
            _ => Ok(()),
        }
    }
}

/// A file that steps or events cannot be added to.
pub(crate) fn unwritten((path, source): (PathBuf, io::Error)) -> EngineError {
    EngineError::Log { path: path.display().to_string(), source }
}
