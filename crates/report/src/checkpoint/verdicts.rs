//! The report of checkpoints that were compared with their checksums.

use std::error::Error;

use quadrille_checkpoint::{CheckpointError, Summary, Verdict};
use quadrille_run::units::bytes;
use quadrille_spec::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ReportVersion;

/// Checkpoints that were read in full: what `checkpoint verify --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerdictsReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointVerdict>,
}

/// The verdict on a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointVerdict {
    /// Its folder.
    pub path: String,
    /// True if all of it is sound.
    pub sound: bool,
    /// Its sound parts; null where it cannot be opened.
    pub summary: Option<Summary>,
    /// All other parts, with the reasons.
    pub faults: Vec<String>,
}

impl VerdictsReport {
    /// Report of verdicts.
    pub fn new(verdicts: &[Verdict]) -> Self {
        Self { version: ReportVersion::CURRENT, checkpoints: verdicts.iter().map(CheckpointVerdict::new).collect() }
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        self.checkpoints.iter().map(CheckpointVerdict::text).collect()
    }
}

impl CheckpointVerdict {
    fn new(verdict: &Verdict) -> Self {
        Self {
            path: verdict.path.to_string_lossy().into_owned(),
            sound: verdict.is_sound(),
            summary: verdict.summary.clone(),
            faults: verdict.faults.iter().map(told).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.path);
        let mut tell = |line: String| text += &format!("  {line}\n");
        if let Some(Summary { tensors, files, tiles, bytes: size, not_finite }) = &self.summary {
            let size = bytes(*size);
            let sound = if self.sound { "all sound" } else { "sound of them" };
            tell(format!(
                "{sound}: {tiles} tiles, {size}; {tensors} tensors in {}, each number in exactly one tile",
                counted(*files, "file")
            ));
            for found in not_finite {
                let numbers = usize::try_from(found.numbers).unwrap_or(usize::MAX);
                tell(format!("not finite: {} of {} ({})", counted(numbers, "number"), found.tensor, found.quantity));
            }
        }
        self.faults.iter().for_each(|fault| tell(format!("damaged: {fault}")));
        text
    }
}

/// An error with its causes.
fn told(error: &CheckpointError) -> String {
    let causes = std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}
