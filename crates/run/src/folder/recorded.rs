//! What a run has recorded in its folder, read while it goes on or later.

use std::path::Path;

use quadrille_engine::StepRecord;
use serde::de::DeserializeOwned;

use super::{EVENTS, Event, STEPS};
use crate::{Refusal, RunError, documents};

/// What the run in a folder has recorded so far.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Every step, in order.
    pub steps: Vec<StepRecord>,
    /// What else happened, in order.
    pub events: Vec<Event>,
    /// Files whose last line is cut off: it is being written, or the run was killed.
    pub cut: Vec<&'static str>,
}

impl Recorded {
    /// Reads the records of a run's folder.
    ///
    /// # Errors
    /// A file, or a line of one, that says what no run writes: both are named; the system's.
    pub fn read(folder: &Path) -> Result<Self, RunError> {
        let mut cut = Vec::new();
        let steps: Vec<StepRecord> = lines(folder, STEPS, &mut cut)?;
        if let Some(at) = steps.windows(2).position(|pair| pair[0].step >= pair[1].step) {
            return Err(Refusal::new(format!(
                "{}, line {}: step {} follows step {}; steps ascend",
                folder.join(STEPS).display(),
                at + 2,
                steps[at + 1].step,
                steps[at].step
            ))
            .into());
        }
        let events = lines(folder, EVENTS, &mut cut)?;
        Ok(Self { steps, events, cut })
    }
}

/// The records of a file of lines; if its last line is cut off, the file is added to those that are.
fn lines<R: DeserializeOwned>(
    folder: &Path,
    name: &'static str,
    cut: &mut Vec<&'static str>,
) -> Result<Vec<R>, RunError> {
    let path = folder.join(name);
    let mut lines = match documents::records(&path) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        lines => lines?,
    };
    let mut records = Vec::new();
    while let Some(line) = lines.next_line()? {
        if !line.is_whole {
            cut.push(name);
            break;
        }
        let record = serde_json::from_slice(line.bytes).map_err(|error| {
            // Each line is a document of its own: the column counts, and the line is the file's.
            let column = error.column();
            let mut reason = error.to_string();
            reason.truncate(reason.rfind(" at line ").unwrap_or(reason.len()));
            Refusal::new(format!("{}, line {}, column {column}: {reason}", path.display(), line.number))
        });
        records.push(record?);
    }
    Ok(records)
}
