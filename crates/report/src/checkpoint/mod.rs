//! What a checkpoint is of, its tensors and its files; whether they are sound; what of them is pruned.

mod contents;
mod pruned;
mod verdicts;

pub use contents::{contents_document, contents_text};
pub use pruned::{distances_text, pruned_table, settled_at};
pub use verdicts::{verdicts_document, verdicts_text};
