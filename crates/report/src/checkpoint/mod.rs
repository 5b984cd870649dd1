//! What a checkpoint is of, its tensors and its files; whether they are sound; what of them is pruned.

mod changes;
mod contents;
mod notes;
mod pruned;
mod verdicts;

pub use changes::{KeptCheckpoints, MergeReport, PruningReport, SettlingReport};
pub use contents::{CheckpointFile, CheckpointReport};
use pruned::pruned_table;
pub use verdicts::{CheckpointVerdict, VerdictsReport};

/// A tensor's name, for all blocks alike.
fn of_all_blocks(tensor: &str) -> String {
    let block = tensor.strip_prefix("block.").and_then(|rest| rest.split_once('.'));
    block.map_or(tensor.to_owned(), |(_, part)| format!("block.*.{part}"))
}
