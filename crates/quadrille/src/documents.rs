//! The small files that commands read: what messages call each kind, and how long it may be. Those of runs, and of
//! models, layouts and clusters, are in `quadrille_run::documents`.

use quadrille_files::Document;

/// `--interconnect`.
pub const INTERCONNECT: Document = Document::new("an interconnect file", 1 << 20);
/// Tables of `estimate` and `validate`.
pub const TABLE: Document = Document::new("a table", 1 << 28);
/// `--prompt-file`.
pub const PROMPT: Document = Document::new("a prompt", 1 << 26);
