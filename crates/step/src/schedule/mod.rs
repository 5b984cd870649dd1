//! Pipeline schedules as data: the order in which every stage runs its passes over microbatches and chunks.
//!
//! [`actions`] makes the lists of a schedule, one per stage; [`check`] proves lists complete, ordered and free of
//! deadlock; [`forward_actions`] leaves the forward passes of a schedule; [`steps`] and [`forward_steps`] add
//! where receives are posted and send buffers released; [`makespan`] times the lists, [`execute`] with messages.
//!
//! Letters: `p` stages, `r` a stage (0-based), `v` chunks of a stage, `m` microbatches, `N` microbatches of a group,
//! `g` a global stage: chunk `c` on stage `r` is global stage `c p + r`. A microbatch passes the global stages in
//! ascending order forward and in descending order backward. `F`, `B`, `W`: forward, backward, weight gradient.
//!
//! In every schedule the forwards of a chunk come in ascending order of microbatches, and so do its backwards and its
//! weight gradients: sums over microbatches have the same bits in all schedules.

mod check;
mod error;
mod gpipe;
mod interleaved;
mod message_driven;
mod one_forward_one_backward;
mod pipeline;
mod steps;
mod timing;
mod zero_bubble;

use std::fmt;

use serde::{Deserialize, Serialize};

use quadrille_spec::Schedule;

pub use check::{Checked, check};
pub use error::ScheduleError;
pub use pipeline::Pipeline;
pub use steps::{Step, forward_steps, steps};
pub use timing::{Span, Timing, execute, makespan};

/// Which part of the work on a microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// The forward pass.
    Forward,
    /// The backward pass; under a schedule that splits weight gradients off, its input gradients only.
    Backward,
    /// The weight gradients, after the backward pass; only under a schedule that splits them off.
    WeightGradient,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::WeightGradient => "weight gradient",
        })
    }
}

/// One pass of one microbatch through one chunk of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Action {
    /// Which part of the work.
    pub pass: Pass,
    /// The microbatch, from 0.
    pub microbatch: usize,
    /// The chunk of the stage, from 0.
    pub chunk: usize,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of microbatch {}, chunk {}", self.pass, self.microbatch, self.chunk)
    }
}

/// Whether a schedule runs weight gradients as passes of their own.
pub fn splits_weight_gradients(schedule: Schedule) -> bool {
    schedule == Schedule::ZeroBubble
}

/// The forward passes of every stage, in the order in which the schedule has them.
///
/// # Errors
///
/// As [`actions`].
pub fn forward_actions(schedule: Schedule, pipeline: Pipeline) -> Result<Vec<Vec<Action>>, ScheduleError> {
    let mut lists = actions(schedule, pipeline)?;
    lists.iter_mut().for_each(|list| list.retain(|action| action.pass == Pass::Forward));
    Ok(lists)
}

/// The passes of every stage, in the order in which the stage runs them.
///
/// # Errors
///
/// [`ScheduleError::Pipeline`] for a pipeline that the schedule cannot order: a size of 0 or beyond what can be
/// listed, several chunks in another schedule than the interleaved one or on a single stage, and groups that are
/// shorter than the pipeline or longer than the batch.
pub fn actions(schedule: Schedule, pipeline: Pipeline) -> Result<Vec<Vec<Action>>, ScheduleError> {
    pipeline.check_sizes()?;
    pipeline.check_legal(schedule)?;
    let stages = 0..pipeline.stages;
    Ok(match schedule {
        Schedule::Gpipe => stages.map(|_| gpipe::actions(pipeline)).collect(),
        Schedule::OneForwardOneBackward => {
            stages.map(|stage| one_forward_one_backward::actions(pipeline, stage)).collect()
        }
        Schedule::Interleaved => stages.map(|stage| interleaved::actions(pipeline, stage)).collect(),
        Schedule::ZeroBubble => stages.map(|stage| zero_bubble::actions(pipeline, stage)).collect(),
        Schedule::MessageDriven => message_driven::actions(pipeline),
    })
}
