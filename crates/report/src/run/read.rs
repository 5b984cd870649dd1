//! What the folder of a run says, read and held together.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quadrille_engine::StepRecord;
use quadrille_run::{Description, Event, ExpertLoads, Processes, Recorded, RunError, checkpoints, documents};
use quadrille_spec::{FlopsConvention, Ledger};
use quadrille_step::StepProgram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ReportError;

/// A run.
pub struct Run {
    /// Its folder, as it was named.
    pub path: PathBuf,
    /// What followed `quadrille train`.
    pub command: Vec<String>,
    /// The model and layout of its last part, as the step that was run.
    pub program: StepProgram,
    /// Threads of each rank.
    pub threads: usize,
    /// The step after which it was to end, if it says so.
    pub last: Option<u64>,
    /// The least loss that a model can reach, if that is known.
    pub floor: Option<f64>,
    /// Every step that is recorded, in order.
    pub steps: Vec<StepRecord>,
    /// What else happened, in order.
    pub events: Vec<Event>,
    /// The ledgers that were predicted before the first step.
    pub predicted: Ledger,
    /// What it left at its end, or why there is nothing.
    pub summary: Result<Summary, String>,
    /// Finished checkpoints, oldest first.
    pub checkpoints: Vec<Stored>,
    /// How many checkpoints are unfinished: one is being written, or the run was killed.
    pub unfinished: usize,
    /// Files whose last line is cut off: it is being written, or the run was killed.
    pub cut: Vec<&'static str>,
    /// How the FLOPs of its rate are counted.
    pub flops_convention: FlopsConvention,
}

/// A checkpoint as the system lists it; it is not opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stored {
    /// The step after which it was written.
    pub step: u64,
    /// Its folder's name.
    pub name: String,
    /// Of all its files together.
    pub bytes: u64,
}

/// What is read of `summary.json`: it tells of the last part of the run.
#[derive(Debug, Deserialize)]
pub struct Summary {
    /// The steps of this part; of one that had none left to do, all of the run.
    pub steps: Vec<StepRecord>,
    /// What was predicted, what was counted.
    pub ledger: Ledgers,
    /// Seconds per operation kind on rank 0, over all steps but the first.
    breakdown_s: BTreeMap<String, f64>,
    /// The same of every rank.
    breakdown_of_ranks_s: Vec<BTreeMap<String, f64>>,
    /// How often experts were chosen, by block that has some.
    pub expert_loads: Vec<ExpertLoads>,
}

/// Ledgers of the same step.
#[derive(Debug, Deserialize)]
pub struct Ledgers {
    /// What the program says.
    pub predicted: Ledger,
    /// What was counted in the last step; `None` of a part that had none left to do.
    pub counted: Option<Ledger>,
    /// Whether they were equal, as integers, on every rank in every step, where there was one.
    pub equal: Option<bool>,
}

impl Summary {
    /// Seconds per operation kind in a step, of every rank that is known, rank 0 first; and the step's seconds. `None` where no
    /// step but the first, which does not count, was measured.
    pub fn breakdown(&self) -> Option<(Vec<BTreeMap<&str, f64>>, f64)> {
        let counted = self.steps.get(1..).filter(|steps| !steps.is_empty() && !self.breakdown_s.is_empty())?;
        let count = counted.len() as f64;
        let ranks = match self.breakdown_of_ranks_s.as_slice() {
            [] => std::slice::from_ref(&self.breakdown_s),
            ranks => ranks,
        };
        let ranks =
            ranks.iter().map(|rank| rank.iter().map(|(name, sum)| (name.as_str(), sum / count)).collect()).collect();
        Some((ranks, counted.iter().map(|step| step.seconds).sum::<f64>() / count))
    }
}

impl Run {
    /// Reads the folder. The run may be going on meanwhile.
    ///
    /// # Errors
    /// There is no run; a file, or a line of one, that says what no run writes: both are named.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let description = Description::read(path)?;
        let broken = |error: String| ReportError::Foreign { path: path.join("run.json"), reason: error };
        let model = description.model().map_err(broken)?;
        let layout = description.layout(&model).map_err(broken)?;
        let predicted = serde_json::from_value(description.predicted).map_err(|error| broken(error.to_string()))?;
        let Recorded { steps, events, cut } = Recorded::read(path)?;
        let ranks = layout.grid.ranks();
        let (checkpoints, unfinished) = stored(path)?;
        Ok(Self {
            path: path.to_owned(),
            command: description.command,
            program: StepProgram::pruned(&model, &layout, description.known.kept)?,
            threads: description.known.threads.unwrap_or_else(|| Processes::THREADS.cores_each(ranks)),
            last: description.known.steps,
            floor: description.known.floor,
            summary: summary(path, &steps)?,
            steps,
            events,
            predicted,
            checkpoints,
            unfinished,
            cut,
            flops_convention: FlopsConvention::default(),
        })
    }
}

/// `summary.json`, if it is of what `steps` end with.
fn summary(folder: &Path, steps: &[StepRecord]) -> Result<Result<Summary, String>, ReportError> {
    let path = folder.join("summary.json");
    let text = match documents::SUMMARY.text(&path) {
        Err(error) if error.is_missing() => {
            return Ok(Err("There is no summary.json: the run goes on, or was cut off before its end.".to_owned()));
        }
        text => text.map_err(RunError::from)?,
    };
    let summary: Summary =
        serde_json::from_str(&text).map_err(|error| ReportError::Foreign { path, reason: error.to_string() })?;
    let [end, last] = [&summary.steps, steps].map(|steps| steps.last().map(|step| step.step));
    Ok(match (end, last) {
        (Some(end), last) if end != last.unwrap_or(0) => Err(format!(
            "summary.json is of another part of the run, which ended after step {end}: the run goes on, or was cut off before its \
             end."
        )),
        _ => Ok(summary),
    })
}

/// Finished checkpoints, and how many unfinished ones there are.
fn stored(folder: &Path) -> Result<(Vec<Stored>, usize), ReportError> {
    let folder = checkpoints(folder);
    let unlisted = |error| ReportError::Checkpoints(RunError::from(error));
    let mut found = Vec::new();
    for (step, path) in folder.list().map_err(unlisted)? {
        let unreadable = |error| ReportError::Unreadable { path: path.clone(), error };
        // A run removes old checkpoints as it goes.
        let Some(bytes) = size(&path).map_err(unreadable)? else { continue };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push(Stored { step, name, bytes });
    }
    found.reverse();
    Ok((found, folder.partial().map_err(unlisted)?.len()))
}

/// Bytes of the files of a folder; none if it is gone.
fn size(folder: &Path) -> io::Result<Option<u64>> {
    let sum =
        || -> io::Result<u64> { fs::read_dir(folder)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.len())) };
    match sum() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        sum => sum.map(Some),
    }
}
