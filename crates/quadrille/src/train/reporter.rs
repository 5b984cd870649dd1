//! What a training run shows to people and writes into its logs as it goes.

use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quadrille_engine::{EngineError, Evaluation, RunEvent, StepRecord};
use quadrille_spec::Model;

use crate::failure::Failure;
use crate::output::tell;
use crate::run_folder::{Event, Lines, Records};
use crate::train::arguments::TrainArguments;

/// The file of `--log`, empty.
pub fn create_log(path: &Path) -> Result<Lines, Failure> {
    Lines::create(path).map_err(|error| Failure::usage(format!("cannot write the log {}: {error}", path.display())))
}

/// Shows steps to people, writes them to the logs.
pub struct Reporter {
    bar: Option<ProgressBar>,
    lines: bool,
    /// What a sequence is made of.
    unit: &'static str,
    every: u64,
    /// The first and the last step.
    steps: [u64; 2],
    floor: Option<f64>,
    log: Option<Lines>,
    records: Option<Records>,
    /// The step that is done.
    at: u64,
}

impl Reporter {
    /// Of a run from the first to the last of `steps`; only the first process shows anything.
    pub fn new(
        arguments: &TrainArguments,
        model: &Model,
        steps: [u64; 2],
        floor: Option<f64>,
        log: Option<Lines>,
        records: Option<Records>,
        shown: bool,
    ) -> Self {
        let watched = shown && stderr().is_terminal();
        let bar = watched.then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (eta {eta})");
            let bar = ProgressBar::with_draw_target(Some(steps[1]), ProgressDrawTarget::stderr());
            bar.set_position(steps[0] - 1);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let every = ((steps[1] + 1 - steps[0]) / 15).max(1);
        let (lines, unit) = (!arguments.json, model.sequence_unit());
        Self { bar, lines, unit, every, steps, floor, log, records, at: steps[0] - 1 }
    }

    /// Takes in what happened.
    pub fn see(&mut self, event: &RunEvent) -> Result<(), EngineError> {
        match event {
            RunEvent::Step(record) => self.step(record),
            RunEvent::Skipped { step, reason } => {
                self.note(*step, "skipped", format!("step {step} is not applied: {reason}"), None, true)
            }
            RunEvent::Diverged { step, reason } => {
                self.note(*step, "diverged", format!("step {step} ends the run: {reason}"), None, false)
            }
            RunEvent::Validated(step, evaluation) => {
                let Evaluation { loss, targets, .. } = evaluation;
                let text = format!(
                    "step {step:>5}  validation loss {loss:.4}  perplexity {:.3}  over {targets} targets",
                    evaluation.perplexity()
                );
                self.note(*step, "validation", text, Some(*loss), true)
            }
            RunEvent::Saved { step, unremoved } => {
                let older = unremoved.as_ref().map_or(String::new(), |why| format!("; older ones stay: {why}"));
                self.note(self.at, "saved", format!("checkpoint of step {step}{older}"), None, unremoved.is_some())
            }
            RunEvent::NotSaved { step, reason } => {
                self.note(self.at, "not saved", format!("no checkpoint of step {step}: {reason}"), None, true)
            }
            RunEvent::Stopped(step) => {
                self.note(*step, "stopped", format!("stopped after step {step}, as asked"), None, false)
            }
        }
    }

    fn step(&mut self, record: &StepRecord) -> Result<(), EngineError> {
        self.at = record.step;
        if let Some(log) = &mut self.log {
            let line = serde_json::to_string(record).unwrap_or_default();
            log.append(&line).map_err(|source| unwritten(log.path().to_owned(), source))?;
        }
        if let Some(records) = &mut self.records {
            records.step(record).map_err(|(path, source)| unwritten(path, source))?;
        }
        let floor = self.floor.map_or(String::new(), |floor| format!(" (floor {floor:.4})"));
        let text = format!("loss {:.4}{floor}", record.loss);
        if self.lines && (record.step.is_multiple_of(self.every) || self.steps.contains(&record.step)) {
            self.show(&format!(
                "step {:>5}  {text}  norm {:.4}  lr {:.2e}  {:.0} {}/s\n",
                record.step, record.grad_norm, record.lr, record.tokens_per_second, self.unit
            ));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.set_position(record.step);
        }
        if record.spike {
            let text = format!("step {}: the loss {:.4} stands out from those before", record.step, record.loss);
            self.note(record.step, "spike", text, Some(record.loss), true)?;
        }
        Ok(())
    }

    /// Something beside steps: for the folder's log and, where it matters while the run goes on, for people.
    pub fn note(
        &mut self,
        step: u64,
        kind: &str,
        text: String,
        loss: Option<f64>,
        shown: bool,
    ) -> Result<(), EngineError> {
        if shown && self.lines {
            self.show(&format!("{text}\n"));
        }
        match &mut self.records {
            None => Ok(()),
            Some(records) => records
                .event(&Event { step, kind: kind.to_owned(), text, loss })
                .map_err(|(path, source)| unwritten(path, source)),
        }
    }

    fn show(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(line)),
            None => tell(line),
        }
    }

    /// Removes the bar, and writes what has waited for space on the disk.
    ///
    /// # Errors
    /// There is still none.
    pub fn finish(&mut self) -> Result<(), EngineError> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.records
            .as_mut()
            .map_or(Ok(()), |records| records.flush().map_err(|(path, source)| unwritten(path, source)))
    }
}

fn unwritten(path: PathBuf, source: io::Error) -> EngineError {
    EngineError::Log { path: path.display().to_string(), source }
}
