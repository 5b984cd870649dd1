//! What can be wrong with a pipeline or with the lists of its stages.

use super::Action;

/// A pipeline that a schedule cannot order, or lists that cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A size of the pipeline has a value outside its rule.
    #[error("{field} = {value}: {rule}; {remedy}")]
    Pipeline {
        /// The field of [`Pipeline`](super::Pipeline).
        field: &'static str,
        /// The offending value.
        value: usize,
        /// The rule that it breaks.
        rule: String,
        /// What to do instead.
        remedy: String,
    },
    /// Lists for stages that do not follow lists.
    #[error(
        "message-driven stages choose the next pass by what has arrived; choose another schedule for lists of passes"
    )]
    Decided,
    /// There is not one list per stage.
    #[error("{found} lists of actions: every one of the {stages} stages has one; add or remove lists")]
    StageCount {
        /// Number of lists.
        found: usize,
        /// Stages of the pipeline.
        stages: usize,
    },
    /// An action that the pipeline does not have.
    #[error("stage {stage} lists {action}: {rule}; remove it or correct its numbers")]
    Unknown {
        /// The stage.
        stage: usize,
        /// What it lists.
        action: Action,
        /// Which actions there are.
        rule: String,
    },
    /// A pass is listed twice, left out or before a lower microbatch's.
    #[error(
        "stage {stage} lists {action} where microbatch {expected} is next: passes of a chunk come once each, in \
         ascending order of microbatches; reorder them, and list each once"
    )]
    OutOfOrder {
        /// The stage.
        stage: usize,
        /// What it lists.
        action: Action,
        /// The microbatch whose turn it is.
        expected: usize,
    },
    /// A pass is not listed at all.
    #[error("stage {stage} does not list {action}: every pass is listed exactly once; add it")]
    Missing {
        /// The stage.
        stage: usize,
        /// The first action that it lacks.
        action: Action,
    },
    /// A pass stands before the pass of the same stage that it continues.
    #[error("stage {stage} lists {action} before the {needed}, whose result it needs; move it after that")]
    TooEarly {
        /// The stage.
        stage: usize,
        /// What it lists.
        action: Action,
        /// What has to come first.
        needed: Action,
    },
    /// A stage receives messages of one kind in another order than they are sent.
    #[error(
        "stage {stage} lists {action} after a pass of the same kind whose message stage {sender} sends later: \
         messages of a kind are received in the order of their sends; order both stages alike"
    )]
    Overtaken {
        /// The receiving stage.
        stage: usize,
        /// The action whose message is overtaken.
        action: Action,
        /// The sending stage.
        sender: usize,
    },
    /// Stages wait for each other.
    #[error(
        "deadlock: stage {stage} waits with {action} for the {needed} on stage {sender}, which never comes to it: no \
         stage may list a pass before one that it depends on over other stages; move it after that"
    )]
    Deadlock {
        /// A stage that waits for ever.
        stage: usize,
        /// The first action that it cannot run.
        action: Action,
        /// The stage that it waits for.
        sender: usize,
        /// The action that it waits for.
        needed: Action,
    },
}
