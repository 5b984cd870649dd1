//! What a checkpoint is of, its tensors and its files; whether they are sound; what of them is pruned.

mod contents;
mod notes;
mod pruned;
mod verdicts;

pub use contents::{contents_document, contents_text};
pub use pruned::{distances_text, pruned_table, settled_at};
pub use verdicts::{verdicts_document, verdicts_text};

/// A tensor's name, for all blocks alike.
fn of_all_blocks(tensor: &str) -> String {
    let block = tensor.strip_prefix("block.").and_then(|rest| rest.split_once('.'));
    block.map_or(tensor.to_owned(), |(_, part)| format!("block.*.{part}"))
}
