//! The folder of a run: what was asked for, what happened step by step, checkpoints.
//!
//! | file | holds |
//! |---|---|
//! | `run.json` | the command line, model and layout, written when the run begins |
//! | `steps.jsonl`, `steps.csv` | a record per step |
//! | `events.jsonl` | checkpoints, validation, spikes, skipped steps |
//! | `events.out.tfevents.*` | steps and validation for TensorBoard, a file for each part of the run |
//! | `checkpoints/` | see `quadrille_checkpoint` |
//! | `summary.json` | what `--json` prints, written when the run ends |
//! | `lock` | held while a run writes here |

mod lines;
mod lock;
mod tensorboard;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quadrille_checkpoint::Folder;
use quadrille_engine::StepRecord;
use quadrille_files::{create_folders, remove_left};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use lines::Lines;
pub use lock::Lock;

use crate::documents;
use crate::failure::Failure;
use crate::files;
use tensorboard::EventFile;

/// The file of what a run says at its end.
pub const SUMMARY: &str = "summary.json";
/// The file with a line per step.
const STEPS: &str = "steps.jsonl";
/// Counts changes of `run.json`.
const VERSION: u32 = 1;

/// What `run.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    version: u32,
    /// What followed `quadrille train`, without the folder.
    pub command: Vec<String>,
    /// The model.
    pub model: Value,
    /// The layout of the last part of the run.
    pub layout: Value,
    /// The predicted ledgers of a step.
    pub predicted: Value,
    /// What else is known before the first step.
    #[serde(default)]
    pub known: Known,
}

/// What is known of a run before its first step, beside its command line. A run of an older program may not say it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The last step.
    pub steps: Option<u64>,
    /// Threads of each rank.
    pub threads: Option<usize>,
    /// The least mean loss that a model can reach on the data, where that is known.
    pub floor: Option<f64>,
}

impl Description {
    pub fn new(command: Vec<String>, model: Value, layout: Value, predicted: Value, known: Known) -> Self {
        Self { version: VERSION, command, model, layout, predicted, known }
    }
}

/// A run's folder, locked.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for RunFolder {
    /// Leaves nothing of a run that has not begun.
    fn drop(&mut self) {
        if !self.path.join("run.json").exists() {
            // What cannot be removed, e.g. a folder with the user's files, is no harm.
            let _ = fs::remove_file(self.path.join("lock"));
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
    pub fn create(path: &Path) -> Result<Self, Failure> {
        create_folders(path)
            .map_err(|error| Failure::usage(format!("cannot make the folder --out {}: {error}", path.display())))?;
        let lock = Lock::of(path)?;
        if path.join("run.json").exists() {
            return Err(Failure::usage(format!(
                "--out {0} holds a run already; go on with it by --resume {0}, or name another folder",
                path.display()
            )));
        }
        Self::locked(path, lock)
    }

    /// Locks the folder of a run that is to go on, and removes what a crash has left half written.
    ///
    /// # Errors
    /// There is no run; another process writes it; the system's.
    pub fn resume(path: &Path) -> Result<Self, Failure> {
        describe(path)?;
        let lock = Lock::of(path)?;
        checkpoints(path).clean().map_err(|error| Failure::Run(error.into()))?;
        Self::locked(path, lock)
    }

    /// The folder, without the files that a killed process was about to give their names: whoever holds the lock is the
    /// only one that writes here.
    fn locked(path: &Path, lock: Lock) -> Result<Self, Failure> {
        remove_left(path).map_err(|error| Failure::run(format!("cannot clean {}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Writes what the run is, and opens its records, of which those after `step` are dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(&self, description: &Description, step: u64) -> Result<Records, Failure> {
        let records = Records::open(&self.path, step)?;
        self.write("run.json", description)?;
        Ok(records)
    }

    /// The steps of the run, as its records are.
    ///
    /// # Errors
    /// A line that is no step's; the system's.
    pub fn steps(&self) -> Result<Vec<StepRecord>, Failure> {
        let path = self.path.join(STEPS);
        kept(&path, |_| true)
    }

    /// Writes a document, whole or not at all.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, name: &str, document: &impl Serialize) -> Result<(), Failure> {
        let path = self.path.join(name);
        let text = serde_json::to_vec_pretty(document).map_err(|error| Failure::Run(error.into()))?;
        files::replace(&path, &text).map_err(|error| Failure::run(files::unwritable("", &path, &error)))
    }
}

/// A file of records that a run cannot go on with.
fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(match error.kind() {
        io::ErrorKind::InvalidData => {
            format!("{}: {error}; remove the line, or the file, whose records are then gone", path.display())
        }
        _ => format!("cannot write {}: {error}", path.display()),
    })
}

/// The log of a run that goes on: its lines after `step` are dropped, new ones are added.
///
/// # Errors
/// A line that is no step's; the system's.
pub fn continued_log(path: &Path, step: u64) -> Result<Lines, Failure> {
    let failure = |error: io::Error| unusable(path, &error);
    // A pipe or a device has no lines to keep.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Lines::create(path).map_err(failure);
    }
    let kept = kept(path, |record: &StepRecord| record.step <= step)?;
    rewrite(path, kept.iter().map(line)).map_err(failure)?;
    Lines::continued(path).map_err(failure)
}

/// The checkpoints of a run's folder.
pub fn checkpoints(path: &Path) -> Folder {
    Folder::new(&path.join("checkpoints"))
}

/// Whether the run in a folder has said what it says at its end, after this step. One that was killed before, or while it did
/// so, has not.
///
/// # Errors
/// The system's.
pub fn has_ended(path: &Path, step: u64) -> Result<bool, Failure> {
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

/// What the run of a folder is.
///
/// # Errors
/// There is none; a file that is none of this version.
pub fn describe(path: &Path) -> Result<Description, Failure> {
    let file = path.join("run.json");
    let text = match documents::RUN.text(&file) {
        Err(error) if error.is_missing() => {
            let rule = "a run's folder, as train --out writes it, has one";
            return Err(Failure::usage(format!("{} holds no run.json: {rule}", path.display())));
        }
        text => text?,
    };
    let unreadable = |reason: String| Failure::usage(format!("{}: {reason}", file.display()));
    let value: Value = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    match value["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {
            serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))
        }
        version => Err(unreadable(format!(
            "version {} of a run's description, and this program reads version {VERSION}",
            version.map_or("unknown".to_owned(), |version| version.to_string())
        ))),
    }
}

/// Something beside steps that happened in a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// The files to which a run adds as it goes.
#[derive(Debug)]
pub struct Records {
    steps: Lines,
    table: Lines,
    events: Lines,
    scalars: EventFile,
}

impl Records {
    fn open(folder: &Path, step: u64) -> Result<Self, Failure> {
        let [steps, table, events] = [STEPS, "steps.csv", "events.jsonl"].map(|name| folder.join(name));
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

    /// Tries again to write what is waiting; the file that cannot be written, with the system's reason.
    pub fn flush(&mut self) -> Result<(), (PathBuf, io::Error)> {
        for lines in [&mut self.steps, &mut self.table, &mut self.events] {
            lines.flush().map_err(|error| (lines.path().to_owned(), error))?;
        }
        self.scalars.flush()
    }

    /// Adds a step; the file that cannot be written, with the system's reason.
    pub fn step(&mut self, record: &StepRecord) -> Result<(), (PathBuf, io::Error)> {
        add(&mut self.steps, &line(record))?;
        add(&mut self.table, &row(record))?;
        self.scalars.step(record)
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event) -> Result<(), (PathBuf, io::Error)> {
        add(&mut self.events, &line(event))?;
        match event.loss {
            Some(loss) if event.kind == "validation" => self.scalars.validation(event.step, loss),
            _ => Ok(()),
        }
    }
}

fn add(lines: &mut Lines, text: &str) -> Result<(), (PathBuf, io::Error)> {
    lines.append(text).map_err(|error| (lines.path().to_owned(), error))
}

fn line(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

const COLUMNS: &str = "step,loss,grad_norm,lr,tokens,seconds,tokens_per_second,applied,spike";

fn row(record: &StepRecord) -> String {
    let StepRecord { step, loss, grad_norm, lr, tokens, seconds, tokens_per_second, applied, spike } = record;
    format!("{step},{loss},{grad_norm},{lr},{tokens},{seconds},{tokens_per_second},{applied},{spike}")
}

/// The records of a file of lines that are to stay; what a crash has left of a last line is dropped.
fn kept<R: for<'de> Deserialize<'de>>(path: &Path, stays: impl Fn(&R) -> bool) -> Result<Vec<R>, Failure> {
    let mut lines = match documents::records(path) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        lines => lines?,
    };
    let (mut records, mut broken) = (Vec::new(), None);
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
    files::replace(path, lines.map(|line| line + "\n").collect::<String>().as_bytes())
}
