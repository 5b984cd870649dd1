//! What a checkpoint is of, its tensors and its files; whether they are sound.

mod contents;
mod verdicts;

pub use contents::{contents_document, contents_text};
pub use verdicts::{verdicts_document, verdicts_text};
