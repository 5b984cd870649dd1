//! The folder of a run: what was asked for, what happened step by step, checkpoints.
//!
//! | file | holds |
//! |---|---|
//! | `run.json` | what decides the run, its command line for people, model and layout, written when the run begins |
//! | `steps.jsonl`, `steps.csv` | a record per step |
//! | `events.jsonl` | checkpoints, validation, spikes, skipped steps |
//! | `events.out.tfevents.*` | steps and validation for TensorBoard, a file for each part of the run |
//! | `checkpoints/` | see `quadrille_checkpoint` |
//! | `summary.json` | what the run says at its end |
//! | `lock` | held while a run writes here |

mod description;
mod lines;
mod lock;
mod recorded;
mod records;
mod tensorboard;

use std::fs;
use std::path::{Path, PathBuf};

use quadrille_checkpoint::Folder;
use quadrille_engine::StepRecord;
use quadrille_files::{create_folders, remove_left, replace};
use serde::{Deserialize, Serialize};

pub use description::{Description, Known};
pub use lines::Lines;
pub use lock::Lock;
pub use recorded::Recorded;
pub(crate) use records::line;
pub use records::{Event, Records, continued_log};

use crate::refusal::{Refusal, Setting};
use crate::{RunError, documents};
use records::kept;

/// What a run writes into its folder, and nothing else may.
pub const FILES: [&str; 7] = [DESCRIPTION, STEPS, TABLE, EVENTS, SUMMARY, LOCK, CHECKPOINTS];
/// The file of what decides a run.
pub(crate) const DESCRIPTION: &str = "run.json";
/// The file of what a run says at its end.
pub(crate) const SUMMARY: &str = "summary.json";
/// The file with a line per step.
const STEPS: &str = "steps.jsonl";
/// The file with a line for everything else that happens.
const EVENTS: &str = "events.jsonl";
/// The file with a row per step.
const TABLE: &str = "steps.csv";
/// The file that is held while a run writes.
const LOCK: &str = "lock";
/// The folder of checkpoints.
const CHECKPOINTS: &str = "checkpoints";

/// A run's folder, locked.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for RunFolder {
    /// Leaves nothing of a run that has not begun.
    fn drop(&mut self) {
        if !self.path.join(DESCRIPTION).exists() {
            // What cannot be removed, e.g. a folder with the user's files, is no harm.
            let _ = fs::remove_file(self.path.join(LOCK));
            let _ = fs::remove_dir(&self.path);
        }
    }
}

impl RunFolder {
    /// Locks the folder of a new run, makes it if it is not there, and removes what a run has left that was killed before it
    /// began.
    ///
    /// # Errors
    /// It holds a run already; another process writes it; the system's.
    pub fn create(path: &Path) -> Result<Self, RunError> {
        let shown = path.display();
        create_folders(path).map_err(|error| {
            Refusal::new("cannot make the folder ").name(Setting::Out).text(format!(" {shown}: {error}"))
        })?;
        let lock = Lock::of(path)?;
        if path.join(DESCRIPTION).exists() {
            let refusal = Refusal::of(Setting::Out).text(format!(" {shown} holds a run already; go on with it by "));
            return Err(refusal.name(Setting::Resume).text(format!(" {shown}, or name another folder")).into());
        }
        Self::locked(path, lock)
    }

    /// Locks the folder of a run that is to go on, and removes what a crash has left half written.
    ///
    /// # Errors
    /// There is no run; another process writes it; the system's.
    pub fn resume(path: &Path) -> Result<Self, RunError> {
        Description::read(path)?;
        let lock = Lock::of(path)?;
        checkpoints(path).clean()?;
        Self::locked(path, lock)
    }

    /// The folder, without the files that a killed process was about to give their names: whoever holds the lock is the
    /// only one that writes here.
    fn locked(path: &Path, lock: Lock) -> Result<Self, RunError> {
        remove_left(path).map_err(|error| RunError::Unclean { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Writes what the run is, and opens its records, of which those after `step` are dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(&self, description: &Description, step: u64) -> Result<Records, RunError> {
        let records = Records::open(&self.path, step)?;
        self.write(DESCRIPTION, description)?;
        Ok(records)
    }

    /// The steps of the run, as its records are.
    ///
    /// # Errors
    /// A line that is no step's; the system's.
    pub fn steps(&self) -> Result<Vec<StepRecord>, RunError> {
        kept(&self.path.join(STEPS), |_| true)
    }

    /// Writes a document, whole or not at all.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, name: &str, document: &impl Serialize) -> Result<(), RunError> {
        let path = self.path.join(name);
        let text = serde_json::to_vec_pretty(document).map_err(RunError::Document)?;
        replace(&path, &text).map_err(RunError::unwritten(&path))
    }
}

/// The checkpoints of a run's folder.
pub fn checkpoints(path: &Path) -> Folder {
    Folder::new(&path.join(CHECKPOINTS))
}

/// Whether the run in a folder has said what it says at its end, after this step. One that was killed before, or while it did
/// so, has not.
///
/// # Errors
/// The system's.
pub fn has_ended(path: &Path, step: u64) -> Result<bool, RunError> {
    #[derive(Deserialize)]
    struct Summary {
        steps: Vec<StepRecord>,
    }
    let file = path.join(SUMMARY);
    match documents::SUMMARY.bytes(&file) {
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error.into()),
        Ok(text) => Ok(serde_json::from_slice::<Summary>(&text)
            .is_ok_and(|summary| summary.steps.last().is_some_and(|last| last.step == step))),
    }
}
