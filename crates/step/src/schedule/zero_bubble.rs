//! ZB-H1 (Qi et al. 2023, "Zero bubble pipeline parallelism", section 2): 1F1B with the weight gradients apart. A stage
//! passes input gradients on first and computes weight gradients where it would be idle at the end.
//!
//! Stage `r` runs the weight gradients of microbatch `k - r` after the backward of microbatch `k`: later stages, which
//! have fewer forwards in advance, put more weight gradients off. So every stage has at most `min(p, m)` microbatches
//! in flight, the peak of 1F1B's first stage (of them `min(p-r, m)` before their backward, as in 1F1B), and the bubble
//! is `(p-1)(F + B - W)` instead of 1F1B's `(p-1)(F + B + W)`, with `B` the input gradients alone.

use super::{Action, Pass, Pipeline, one_forward_one_backward};

/// The list of `stage`.
pub(super) fn actions(pipeline: Pipeline, stage: usize) -> Vec<Action> {
    let weight_gradient = |microbatch| Action { pass: Pass::WeightGradient, microbatch, chunk: 0 };
    let mut list = Vec::with_capacity(3 * pipeline.microbatches);
    for action in one_forward_one_backward::actions(pipeline, stage) {
        list.push(action);
        if action.pass == Pass::Backward {
            list.extend(action.microbatch.checked_sub(stage).map(weight_gradient));
        }
    }
    list.extend((pipeline.microbatches.saturating_sub(stage)..pipeline.microbatches).map(weight_gradient));
    list
}
