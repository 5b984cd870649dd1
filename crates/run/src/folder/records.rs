//! The files of lines, or of other records, to which a run adds as it goes.

use std::io;
use std::path::{Path, PathBuf};

use quadrille_engine::{Evaluation, RunEvent, StepRecord};
use quadrille_files::replace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tensorboard::EventFile;
use super::{EVENTS, Lines, STEPS, TABLE};
use crate::{Refusal, RunError, documents};

/// Something beside steps that happened in a run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// The step after which it happened.
    pub step: u64,
    /// `resumed`, `saved`, `not saved`, `skipped`, `diverged`, `spike`, `validation` or `stopped`.
    pub kind: String,
    /// For people.
    pub text: String,
    /// The loss of a validation or a spike.
    pub loss: Option<f64>,
}

impl Event {
    fn new(step: u64, kind: &str, text: String) -> Self {
        Self { step, kind: kind.to_owned(), text, loss: None }
    }

    /// What is recorded of something that happened while the run was at step `at`; `None` of a step like any other, which is
    /// among the steps.
    pub fn of(happened: &RunEvent, at: u64) -> Option<Self> {
        Some(match happened {
            RunEvent::Step(StepRecord { spike: false, .. }) => return None,
            RunEvent::Step(StepRecord { step, loss, .. }) => {
                let text = format!("step {step}: the loss {loss:.4} stands out from those before");
                Self { loss: Some(*loss), ..Self::new(*step, "spike", text) }
            }
            RunEvent::Skipped { step, reason } => {
                Self::new(*step, "skipped", format!("step {step} is not applied: {reason}"))
            }
            RunEvent::Diverged { step, reason } => {
                Self::new(*step, "diverged", format!("step {step} ends the run: {reason}"))
            }
            RunEvent::Validated(step, evaluation) => {
                let Evaluation { loss, targets, .. } = evaluation;
                let text = format!(
                    "step {step:>5}  validation loss {loss:.4}  perplexity {:.3}  over {targets} targets",
                    evaluation.perplexity()
                );
                Self { loss: Some(*loss), ..Self::new(*step, "validation", text) }
            }
            RunEvent::Saved { step, unremoved } => {
                let older = unremoved.as_ref().map_or(String::new(), |why| format!("; older ones stay: {why}"));
                Self::new(at, "saved", format!("checkpoint of step {step}{older}"))
            }
            RunEvent::NotSaved { step, reason } => {
                Self::new(at, "not saved", format!("no checkpoint of step {step}: {reason}"))
            }
            RunEvent::Stopped(step) => Self::new(*step, "stopped", format!("stopped after step {step}, as asked")),
        })
    }

    /// That a run goes on after step `done`, on a grid.
    pub(crate) fn resumed(done: u64, grid: &str) -> Self {
        Self::new(done, "resumed", format!("from step {done} on {grid}"))
    }
}

/// The files to which a run adds as it goes.
#[derive(Debug)]
pub struct Records {
    steps: Lines,
    table: Lines,
    events: Lines,
    scalars: EventFile,
}

impl Records {
    /// Opens the records of a run's folder, of which those after `step` are dropped.
    pub(super) fn open(folder: &Path, step: u64) -> Result<Self, RunError> {
        let [steps, table, events] = [STEPS, TABLE, EVENTS].map(|name| folder.join(name));
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| unusable(&path, &error)
        };
        let kept: Vec<StepRecord> = kept(&steps, |record: &StepRecord| record.step <= step)?;
        let happened: Vec<Event> = self::kept(&events, |event: &Event| event.step <= step)?;
        rewrite(&steps, kept.iter().map(line)).map_err(at(&steps))?;
        rewrite(&table, [COLUMNS.to_owned()].into_iter().chain(kept.iter().map(row))).map_err(at(&table))?;
        rewrite(&events, happened.iter().map(line)).map_err(at(&events))?;
        Ok(Self {
            steps: Lines::continued(&steps).map_err(at(&steps))?,
            table: Lines::continued(&table).map_err(at(&table))?,
            events: Lines::continued(&events).map_err(at(&events))?,
            scalars: EventFile::begin(folder, step).map_err(|(path, error)| unusable(&path, &error))?,
        })
    }

    /// From now on what cannot be written waits until it can.
    pub fn wait_for_space(&mut self) {
        [&mut self.steps, &mut self.table, &mut self.events].into_iter().for_each(Lines::wait_for_space);
        self.scalars.wait_for_space();
    }

    /// Tries again to write what is waiting.
    ///
    /// # Errors
    /// The file that cannot be written, with the system's reason.
    pub fn flush(&mut self) -> Result<(), (PathBuf, io::Error)> {
        for lines in [&mut self.steps, &mut self.table, &mut self.events] {
            lines.flush().map_err(|error| (lines.path().to_owned(), error))?;
        }
        self.scalars.flush()
    }

    /// Adds a step.
    ///
    /// # Errors
    /// The file that cannot be written, with the system's reason.
    pub fn step(&mut self, record: &StepRecord) -> Result<(), (PathBuf, io::Error)> {
        add(&mut self.steps, &line(record))?;
        add(&mut self.table, &row(record))?;
        self.scalars.step(record)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The file that cannot be written, with the system's reason.
    pub fn event(&mut self, event: &Event) -> Result<(), (PathBuf, io::Error)> {
        add(&mut self.events, &line(event))?;
        match event.loss {
            Some(loss) if event.kind == "validation" => self.scalars.validation(event.step, loss),
            _ => Ok(()),
        }
    }
}

/// The log of a run that goes on: its lines after `step` are dropped, new ones are added.
///
/// # Errors
/// A line that is no step's; the system's.
pub fn continued_log(path: &Path, step: u64) -> Result<Lines, RunError> {
    let failure = |error: io::Error| unusable(path, &error);
    // A pipe or a device has no lines to keep.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Lines::create(path).map_err(failure);
    }
    let kept = kept(path, |record: &StepRecord| record.step <= step)?;
    rewrite(path, kept.iter().map(line)).map_err(failure)?;
    Lines::continued(path).map_err(failure)
}

/// A file of records that a run cannot go on with.
fn unusable(path: &Path, error: &io::Error) -> RunError {
    let refusal = Refusal::new(match error.kind() {
        io::ErrorKind::InvalidData => {
            format!("{}: {error}; remove the line, or the file, whose records are then gone", path.display())
        }
        _ => format!("cannot write {}: {error}", path.display()),
    });
    refusal.into()
}

fn add(lines: &mut Lines, text: &str) -> Result<(), (PathBuf, io::Error)> {
    lines.append(text).map_err(|error| (lines.path().to_owned(), error))
}

/// A record as a line.
pub(crate) fn line(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

const COLUMNS: &str = "step,loss,grad_norm,lr,tokens,seconds,tokens_per_second,applied,spike,loss_scale,overflow,repeated,balance,router_z,dropped,most,idle,imbalance";

fn row(record: &StepRecord) -> String {
    let StepRecord { step, loss, grad_norm, lr, tokens, seconds, tokens_per_second, applied, spike, .. } = record;
    let loss_scale = record.loss_scale.map_or(String::new(), |scale| scale.to_string());
    let overflow = record.overflow;
    let repeated = record.repeated;
    let routed = record.router.map_or(",,,,,".to_owned(), |it| {
        format!("{},{},{},{},{},{}", it.balance, it.z, it.dropped, it.most, it.idle, it.imbalance)
    });
    format!(
        "{step},{loss},{grad_norm},{lr},{tokens},{seconds},{tokens_per_second},{applied},{spike},{loss_scale},{overflow},{repeated},{routed}"
    )
}

/// The records of a file of lines that are to stay; what a crash has left of a last line is dropped.
pub(super) fn kept<R: for<'de> Deserialize<'de>>(path: &Path, stays: impl Fn(&R) -> bool) -> Result<Vec<R>, RunError> {
    let mut lines = match documents::records(path) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        lines => lines?,
    };
    let mut records = Vec::new();
    let mut broken = None;
    while let Some(line) = lines.next_line()? {
        // Something follows it: it is not the last.
        if let Some(error) = broken.take() {
            return Err(unusable(path, &error));
        }
        match serde_json::from_slice(line.bytes) {
            Ok(record) if stays(&record) => records.push(record),
            Ok(_) => {}
            Err(error) => {
                broken = Some(io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {error}", line.number)));
            }
        }
    }
    Ok(records)
}

fn rewrite(path: &Path, lines: impl Iterator<Item = String>) -> io::Result<()> {
    replace(path, lines.map(|line| line + "\n").collect::<String>().as_bytes())
}
