//! 1F1B (PipeDream-Flush; Megatron-LM PTD-P, section 2.2.1): a few forwards to fill the pipeline, then forward and
//! backward in turn, then the backwards that are left.
//!
//! Bubble over ideal time `(p-1)/m`, like GPipe's; only `min(p-r, m)` microbatches in flight on stage `r`.

use super::{Action, Pass, Pipeline};

/// The list of `stage`.
pub(super) fn actions(pipeline: Pipeline, stage: usize) -> Vec<Action> {
    let all = |pass| (0..pipeline.microbatches).map(move |microbatch| Action { pass, microbatch, chunk: 0 });
    alternating(all(Pass::Forward), all(Pass::Backward), pipeline.stages - stage - 1)
}

/// The first `warm_up` forwards (all, if there are fewer), then a forward and a backward in turn, then the backwards
/// that are left.
pub(super) fn alternating(
    mut forwards: impl Iterator<Item = Action>,
    mut backwards: impl Iterator<Item = Action>,
    warm_up: usize,
) -> Vec<Action> {
    let mut list: Vec<Action> = forwards.by_ref().take(warm_up).collect();
    for forward in forwards {
        list.push(forward);
        list.extend(backwards.next());
    }
    list.extend(backwards);
    list
}
