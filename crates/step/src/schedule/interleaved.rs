//! Interleaved 1F1B (Megatron-LM PTD-P, section 2.2.2): every stage holds `v` chunks of layers, so that a microbatch
//! passes the stages `v` times and filling the pipeline takes a `v`-th of the time.
//!
//! Passes are ordered as virtual microbatches, pairs of microbatch and chunk: group after group of `N` microbatches, in
//! each group chunk after chunk, in each chunk the group's microbatches. Backwards have the same order with the chunks
//! reversed. Warm-up `w = min(2(p-r-1) + (v-1) N, m v)` forwards; `w + 1` pairs in flight, each a `v`-th of a stage.
//! Bubble over ideal time `(p-1)/(v m)` for `N = p` that divides `m`; `v` times the messages of 1F1B.

use super::one_forward_one_backward::{self, alternating};
use super::{Action, Pass, Pipeline};

/// The list of `stage`; with one chunk it is 1F1B's.
pub(super) fn actions(pipeline: Pipeline, stage: usize) -> Vec<Action> {
    let Pipeline { stages, chunks, group, .. } = pipeline;
    if chunks == 1 {
        return one_forward_one_backward::actions(pipeline, stage);
    }
    let forwards = virtual_microbatches(pipeline);
    let backwards = virtual_microbatches(pipeline).map(|forward| Action {
        pass: Pass::Backward,
        chunk: chunks - 1 - forward.chunk,
        ..forward
    });
    alternating(forwards, backwards, 2 * (stages - stage - 1) + (chunks - 1) * group)
}

/// The forwards of a stage in their order.
fn virtual_microbatches(pipeline: Pipeline) -> impl Iterator<Item = Action> {
    let Pipeline { chunks, microbatches, group, .. } = pipeline;
    (0..microbatches).step_by(group).flat_map(move |start| {
        let end = (start + group).min(microbatches);
        (0..chunks).flat_map(move |chunk| {
            (start..end).map(move |microbatch| Action { pass: Pass::Forward, microbatch, chunk })
        })
    })
}
