//! The small files of runs, and of what they are described by: what messages call each kind, and how long it may be.

use std::path::Path;

use quadrille_files::{Document, FileError, Lines};

/// A model.
pub(crate) const MODEL: Document = Document::new("a model file", 1 << 20);
/// A layout.
pub(crate) const LAYOUT: Document = Document::new("a layout file", 1 << 20);
/// A cluster, also with the measurements of a calibration.
pub(crate) const CLUSTER: Document = Document::new("a cluster file", 1 << 23);
/// `run.json`.
pub(crate) const RUN: Document = Document::new("the description of a run", 1 << 26);
/// `summary.json`, which has a record for each step.
pub const SUMMARY: Document = Document::new("the summary of a run", 1 << 30);
/// Choices of tuned products.
pub(crate) const TUNED: Document = Document::new("a file of tuned products", 1 << 26);

/// Lines of `steps.jsonl`, `events.jsonl` and logs of steps.
///
/// # Errors
/// Those of [`Lines::open`].
pub(crate) fn records(path: &Path) -> Result<Lines, FileError> {
    Lines::open(path, "the records of a run", 1 << 20)
}
