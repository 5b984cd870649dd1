//! Flags of layouts that a published planner takes, chooses itself, or does not know.

use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::layout_arguments::{LayoutArguments, MemoryArguments, PipelineArguments};
use crate::quantities::Counts;

/// What to say of a flag that a search chooses.
pub const SEARCHED: &str = "the search tries all of them; leave it out";

/// What a cost model makes of the flags of layouts.
pub struct LayoutFlags {
    /// The model in words.
    pub model: &'static str,
    /// Flags that it takes, besides `--cluster`.
    pub taken: &'static [&'static str],
    /// Flags that it does not take, with what to do instead; others it does not know.
    pub instead: &'static [(&'static str, &'static str)],
}

impl LayoutFlags {
    /// Refuses flags that the model does not take.
    pub fn check(&self, arguments: &LayoutArguments) -> Result<(), Failure> {
        let mut typed = typed(arguments).into_iter().filter(|flag| !self.taken.contains(flag));
        let Some(flag) = typed.next() else { return Ok(()) };
        let known = self.instead.iter().find(|(known, _)| *known == flag);
        Err(Failure::usage(match known {
            Some((_, remedy)) => format!("{flag}: {remedy}"),
            None => format!("{flag}: {} does not know it; leave it out", self.model),
        }))
    }
}

/// The flags of layouts that were typed, but for `--cluster`.
fn typed(arguments: &LayoutArguments) -> Vec<&'static str> {
    let LayoutArguments {
        layout,
        grid,
        ranks,
        order,
        per_node,
        activations,
        linear,
        summa_panels,
        global_batch,
        microbatch,
        seq_len,
        cluster: _,
        pipeline: PipelineArguments { schedule, chunks, microbatch_group, stage_blocks },
        memory: MemoryArguments { recompute, cac, zero, keep_weights, overlap, overlap_chunks },
    } = arguments;
    let flags = [
        ("--ranks", ranks.is_some()),
        ("--per-node", per_node.is_some()),
        ("--seq-len", seq_len.is_some()),
        ("--global-batch", global_batch.is_some()),
        ("--linear", linear.is_some()),
        ("--grid", grid.is_some()),
        ("--summa-panels", summa_panels.is_some()),
        ("--microbatch", microbatch.is_some()),
        ("--layout", layout.is_some()),
        ("--order", order.is_some()),
        ("--activations", activations.is_some()),
        ("--schedule", schedule.is_some()),
        ("--chunks", chunks.is_some()),
        ("--microbatch-group", microbatch_group.is_some()),
        ("--stage-blocks", stage_blocks.is_some()),
        ("--recompute", recompute.is_some()),
        ("--cac", cac.is_some()),
        ("--zero", zero.is_some()),
        ("--keep-weights", keep_weights.is_some()),
        ("--overlap", overlap.is_some()),
        ("--overlap-chunks", overlap_chunks.is_some()),
    ];
    flags.into_iter().filter(|(_, typed)| *typed).map(|(flag, _)| flag).collect()
}

/// The number of devices, by either of its flags.
pub fn devices(arguments: &PlanArguments) -> Result<Option<usize>, Failure> {
    let gpus = match arguments.gpus.as_ref().map(Counts::values) {
        None => None,
        Some([gpus]) => Some(*gpus),
        Some(_) => return Err(Failure::usage("--gpus: only --cost native compares several numbers; give one")),
    };
    match (gpus, arguments.layout.ranks) {
        (Some(gpus), Some(ranks)) if gpus != ranks => {
            Err(Failure::usage(format!("--gpus {gpus} and --ranks {ranks} are the same number; leave one of them out")))
        }
        (gpus, ranks) => Ok(gpus.or(ranks)),
    }
}
