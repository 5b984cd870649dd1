//! Reports of checkpoints that are pruned, merged or removed.

use std::path::{Path, PathBuf};

use quadrille_checkpoint::{Checkpoint, Distances, EarlyBird, PrunedTensor, Pruning, Scope};
use quadrille_run::units::bytes;
use quadrille_spec::RealType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pruned_table;
use crate::{ReportVersion, Text, table};

/// A pruned checkpoint: what `prune --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PruningReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Folder of the pruned checkpoint.
    pub path: String,
    /// Folder of the checkpoint that decides which weights are pruned.
    pub from: String,
    /// Folder of the checkpoint whose weights it has; null where these are the same.
    pub rewound_to: Option<String>,
    /// Part of the weights that is pruned.
    pub sparsity: f64,
    /// Weights among which magnitudes are compared.
    pub scope: Scope,
    /// Retained elements of every tensor.
    pub tensors: Vec<PrunedTensor>,
    /// Step of the checkpoint that decides; no part of documents.
    #[serde(skip)]
    pub step: u64,
    /// Step of the checkpoint whose weights it has; no part of documents.
    #[serde(skip)]
    pub rewound_step: Option<u64>,
}

impl PruningReport {
    /// Report of a checkpoint that was pruned into a folder.
    pub fn new(
        path: &Path,
        from: &Checkpoint,
        rewound: Option<&Checkpoint>,
        pruning: Pruning,
        tensors: Vec<PrunedTensor>,
    ) -> Self {
        Self {
            version: ReportVersion::CURRENT,
            path: lossy(path),
            from: lossy(from.path()),
            rewound_to: rewound.map(|rewound| lossy(rewound.path())),
            sparsity: pruning.sparsity.part(),
            scope: pruning.scope,
            tensors,
            step: from.about().step,
            rewound_step: rewound.map(|rewound| rewound.about().step),
        }
    }

    /// A table of tensors, then a line on the checkpoint.
    pub fn text(&self) -> Text {
        let weights = self.rewound_step.map(|step| format!(", with the weights of step {step}")).unwrap_or_default();
        let Self { path, step, .. } = self;
        Text::from(pruned_table(&self.tensors)) + format!("\n{path}: pruned by step {step}{weights}\n")
    }
}

/// Distances of the masks of a run's checkpoints: what `prune --when --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettlingReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Distance below which two masks are near each other.
    pub near: f64,
    /// The checkpoints, in the order of steps.
    pub steps: Vec<Distances>,
    /// First step at which masks have settled; null where they have not.
    pub settled_at: Option<u64>,
}

impl SettlingReport {
    /// Report of the distances of masks.
    pub fn new(steps: Vec<Distances>) -> Self {
        let settled_at = steps.iter().find(|found| found.settled).map(|found| found.step);
        Self { version: ReportVersion::CURRENT, near: EarlyBird::NEAR, steps, settled_at }
    }

    /// A table of distances, then a line on the first checkpoint at which masks have settled.
    pub fn text(&self) -> Text {
        let cells = self.steps.iter().map(|found| {
            let distance = |at: usize| found.to_those_before.get(at).map_or(String::new(), |far| format!("{far:.4}"));
            std::iter::once(found.step.to_string()).chain((0..EarlyBird::MASKS - 1).map(distance)).collect()
        });
        let cells: Vec<Vec<String>> = cells.collect();
        let masks = EarlyBird::MASKS;
        let near = self.near;
        let verdict = match self.settled_at {
            Some(step) => format!("settled at step {step}: {masks} masks in a row, every two within {near}"),
            None if self.steps.len() < masks => {
                let checkpoints = self.steps.len();
                format!("of {checkpoints} checkpoints nothing can be said: it takes {masks}; let a run keep more")
            }
            None => format!("not settled: no {masks} masks in a row are, every two, within {near}"),
        };
        let before = (1..masks).map(|before| format!("{before} before"));
        let header: Vec<String> = std::iter::once("step".to_owned()).chain(before).collect();
        Text::from(table(&header, &cells)) + format!("\n{verdict}\n")
    }
}

/// A checkpoint of whole tensors: what `checkpoint merge --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergeReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Folder of the checkpoint of tiles.
    pub from: String,
    /// Folder of the merged checkpoint.
    pub path: String,
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Type of the numbers.
    pub dtype: RealType,
}

impl MergeReport {
    /// Report of a checkpoint that was merged.
    pub fn new(from: &Path, merged: &Checkpoint) -> Self {
        Self {
            version: ReportVersion::CURRENT,
            from: lossy(from),
            path: lossy(merged.path()),
            tensors: merged.tensors().len(),
            bytes: merged.bytes(),
            dtype: merged.about().dtype,
        }
    }

    /// A line for people.
    pub fn text(&self) -> String {
        let Self { from, path, tensors, dtype, .. } = self;
        format!("{from}: {tensors} whole tensors in {dtype}, {}, written to {path}\n", bytes(self.bytes))
    }
}

/// Removed and retained checkpoints of a folder: what `checkpoint prune --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptCheckpoints {
    /// Version of the document.
    pub version: ReportVersion,
    /// Removed checkpoints.
    pub removed: Vec<String>,
    /// Retained checkpoints.
    pub kept: Vec<String>,
    /// Retained unfinished checkpoints.
    pub unfinished: Vec<String>,
}

impl KeptCheckpoints {
    /// Report of removed and retained folders.
    pub fn new(removed: &[PathBuf], kept: &[PathBuf], unfinished: &[PathBuf]) -> Self {
        let [removed, kept, unfinished] =
            [removed, kept, unfinished].map(|paths| paths.iter().map(|path| lossy(path)).collect());
        Self { version: ReportVersion::CURRENT, removed, kept, unfinished }
    }

    /// A line for each.
    pub fn text(&self) -> String {
        let parts = [
            ("removed", &self.removed),
            ("kept", &self.kept),
            ("unfinished, kept without `checkpoints.partial`", &self.unfinished),
        ];
        let lines = parts.iter().flat_map(|(what, paths)| paths.iter().map(move |path| format!("{what}: {path}\n")));
        lines.collect()
    }
}

fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
