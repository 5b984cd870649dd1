//! GPipe (Huang et al. 2019; Megatron-LM PTD-P, section 2.2.1): all forwards, then all backwards.
//!
//! Bubble over ideal time `(p-1)/m`; `m` microbatches in flight. The backwards come in ascending order of microbatches
//! like the forwards, which costs nothing: a stage needs all of both.

use super::{Action, Pass, Pipeline};

/// The list of any stage.
pub(super) fn actions(pipeline: Pipeline) -> Vec<Action> {
    let all = |pass| (0..pipeline.microbatches).map(move |microbatch| Action { pass, microbatch, chunk: 0 });
    all(Pass::Forward).chain(all(Pass::Backward)).collect()
}
