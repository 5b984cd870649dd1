//! The small files that commands read: what messages call each kind, and how long it may be.

use std::path::Path;

use quadrille_files::{Document, FileError, Lines};

/// `--model`.
pub const MODEL: Document = Document::new("a model file", 1 << 20);
/// `--layout`.
pub const LAYOUT: Document = Document::new("a layout file", 1 << 20);
/// `--cluster`, also with the measurements of `calibrate`.
pub const CLUSTER: Document = Document::new("a cluster file", 1 << 23);
/// `--interconnect`.
pub const INTERCONNECT: Document = Document::new("an interconnect file", 1 << 20);
/// Tables of `estimate` and `validate`.
pub const TABLE: Document = Document::new("a table", 1 << 28);
/// What nccl-tests and the OSU benchmarks print.
pub const LOG: Document = Document::new("the log of a benchmark", 1 << 28);
/// `--prompt-file`.
pub const PROMPT: Document = Document::new("a prompt", 1 << 26);
/// `--tune-matmul`.
pub const TUNED: Document = Document::new("a file of tuned products", 1 << 26);
/// `run.json`.
pub const RUN: Document = Document::new("the description of a run", 1 << 26);
/// `summary.json`, which has a record for each step.
pub const SUMMARY: Document = Document::new("the summary of a run", 1 << 30);

/// Lines of `steps.jsonl`, `events.jsonl` and `--log`.
pub fn records(path: &Path) -> Result<Lines, FileError> {
    Lines::open(path, "the records of a run", 1 << 20)
}
