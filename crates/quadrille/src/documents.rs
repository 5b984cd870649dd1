//! The small files that commands read: what messages call each kind, and how long it may be. Those of runs are in
//! `quadrille_run::documents`.

use quadrille_files::Document;

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
