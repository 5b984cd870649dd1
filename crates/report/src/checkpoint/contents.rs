//! The report of a checkpoint: its run, its tensors and its files.

use quadrille_checkpoint::{About, Checkpoint, CheckpointError, PrunedTensor, Quantity, TensorShape};
use quadrille_run::units::bytes;
use quadrille_spec::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::notes::{listed, told};
use super::{of_all_blocks, pruned_table};
use crate::run::command;
use crate::summary::sizes;
use crate::{ReportVersion, Table, Text, table};

/// Ranks that are listed one by one.
const LISTED_RANKS: usize = 32;

/// A checkpoint: what `checkpoint info --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Its folder.
    pub path: String,
    /// Its run, as in its manifest.
    pub about: About,
    /// Quantities that it holds of every tensor.
    pub quantities: Vec<Quantity>,
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its tensors, whole.
    pub tensors: Vec<TensorShape>,
    /// Retained elements of pruned tensors.
    pub masks: Vec<PrunedTensor>,
    /// Its files.
    pub files: Vec<CheckpointFile>,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointFile {
    /// Rank that wrote it.
    pub rank: usize,
    /// Its size.
    pub bytes: u64,
    /// Number of tiles in it.
    pub tiles: usize,
}

/// Retained elements of pruned tensors.
fn masks(checkpoint: &Checkpoint) -> Result<Vec<PrunedTensor>, CheckpointError> {
    let pruned = checkpoint.tensors().iter().enumerate().filter(|(at, _)| checkpoint.is_pruned(*at));
    let of = |(_, shape): (usize, &TensorShape)| {
        let tensor = shape.name.clone();
        let elements = shape.rows as u64 * shape.cols as u64;
        Ok(PrunedTensor { tensor, elements, kept: checkpoint.kept(shape)? })
    };
    pruned.map(of).collect()
}

impl CheckpointReport {
    /// Report of a checkpoint.
    ///
    /// # Errors
    /// Damaged masks.
    pub fn new(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = |(rank, bytes, tiles): (usize, u64, usize)| CheckpointFile { rank, bytes, tiles };
        Ok(Self {
            version: ReportVersion::CURRENT,
            path: checkpoint.path().to_string_lossy().into_owned(),
            about: checkpoint.about().clone(),
            quantities: Quantity::NUMBERS.into_iter().filter(|quantity| checkpoint.has(*quantity)).collect(),
            parameters: checkpoint.tensors().iter().map(|shape| (shape.rows * shape.cols) as u64).sum(),
            bytes: checkpoint.bytes(),
            tensors: checkpoint.tensors().to_vec(),
            masks: masks(checkpoint)?,
            files: checkpoint.files().map(file).collect(),
        })
    }

    /// Lines and tables for people.
    pub fn text(&self) -> Text {
        let about = &self.about;
        let layout = &about.layout;
        let unit = about.model.sequence_unit();
        let held: Vec<String> = self.quantities.iter().map(|quantity| format!("{quantity}s")).collect();
        let only = if held.len() == 1 { ", weights only" } else { "" };
        let mut rows = vec![
            ("checkpoint", self.path.clone()),
            ("model", sizes(&about.model)),
            ("step", format!("{}, after {} sequences, {} {unit}", about.step, about.samples, about.tokens)),
            ("seed", about.seed.to_string()),
            (
                "written on",
                format!(
                    "{} ({}), {} a step",
                    layout.grid,
                    counted(layout.grid.ranks(), "rank"),
                    counted(layout.global_batch, "sequence")
                ),
            ),
            ("numbers", format!("{} parameters in {}: {}{only}", self.parameters, about.dtype, held.join(", "))),
            ("size", format!("{} in {}", bytes(self.bytes), counted(self.files.len(), "file"))),
        ];
        let (command, run) = command_of(&about.run);
        rows.extend(command.map(|command| ("command", command)));
        let notes = [("optimizer", &about.hyper), ("data", &about.data), ("run", &run)];
        rows.extend(notes.map(|(name, note)| (name, told(note))).into_iter().filter(|(_, told)| !told.is_empty()));
        if let Some(config) = &about.hugging_face {
            rows.push(("from", format!("a Hugging Face model: {}", told(config))));
        }
        let text: String = rows.into_iter().map(|(name, value)| format!("{name:<12}{value}\n")).collect();
        let mut text = Text::from(text);
        for table in notes.iter().flat_map(|(_, note)| listed(note)) {
            text += "\n";
            text += table;
        }
        text += "\n";
        text += tensors(&self.tensors);
        if !self.masks.is_empty() {
            text += "\n";
            text += pruned_table(&self.masks);
        }
        text + "\n" + files(&self.files)
    }
}

/// The command line that a run notes, as a shell reads it, and what else it notes.
fn command_of(run: &Value) -> (Option<String>, Value) {
    let mut rest = run.clone();
    let words = rest.as_object_mut().and_then(|run| run.shift_remove("command"));
    let words = words.and_then(|words| serde_json::from_value::<Vec<String>>(words).ok());
    // Those of `train` are flags alone.
    match words.filter(|words| words.first().is_some_and(|word| word.starts_with('-'))) {
        Some(words) => (Some(command(&words)), rest),
        None => (None, run.clone()),
    }
}

/// The same tensors of several blocks are one row.
fn tensors(shapes: &[TensorShape]) -> Table {
    let mut rows: Vec<(String, usize, usize, usize)> = Vec::new();
    for TensorShape { name, rows: height, cols } in shapes {
        let name = of_all_blocks(name);
        match rows.iter_mut().find(|row| (&row.0, row.1, row.2) == (&name, *height, *cols)) {
            Some(row) => row.3 += 1,
            None => rows.push((name, *height, *cols, 1)),
        }
    }
    let cells = rows
        .into_iter()
        .map(|(name, rows, cols, count)| vec![name, rows.to_string(), cols.to_string(), count.to_string()]);
    table(&["tensor", "rows", "columns", "of them"], &cells.collect::<Vec<_>>())
}

fn files(files: &[CheckpointFile]) -> Table {
    let mut files = files.to_vec();
    files.sort_unstable();
    let cells = |file: &CheckpointFile| vec![file.rank.to_string(), file.tiles.to_string(), bytes(file.bytes)];
    if files.len() <= LISTED_RANKS {
        return table(&["rank", "tiles", "size"], &files.iter().map(cells).collect::<Vec<_>>());
    }
    let span = |mut numbers: Vec<u64>| {
        numbers.sort_unstable();
        [numbers[0], numbers[numbers.len() / 2], numbers[numbers.len() - 1]]
    };
    let tiles = span(files.iter().map(|file| file.tiles as u64).collect());
    let sizes = span(files.iter().map(|file| file.bytes).collect());
    let row = |at: usize, name: &str| vec![name.to_owned(), tiles[at].to_string(), bytes(sizes[at])];
    let header = format!("of {}", counted(files.len(), "rank"));
    table(&[header.as_str(), "tiles", "size"], &[row(0, "least"), row(1, "median"), row(2, "most")])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_run_notes_beside_its_command_keeps_its_order() {
        let run = json!({ "command": ["--steps", "1"], "first": 1, "second": 2, "third": 3 });
        let (command, rest) = command_of(&run);
        assert!(command.is_some_and(|command| command.contains("--steps 1")));
        let names: Vec<&String> = rest.as_object().unwrap().keys().collect();
        assert_eq!(names, ["first", "second", "third"]);
    }
}
