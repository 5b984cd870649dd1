//! State of a training run beside parameters and moments.

use quadrille_checkpoint::Checkpoint;
use serde_json::{Map, Value};

use super::divergence::RecentLosses;
use crate::optimizer::loss_scale::LossScaler;
use crate::{Start, TrainOptions};

/// Name of the number of applied updates in checkpoints.
const UPDATES: &str = "updates";

/// Updates that were applied up to a checkpoint: all steps if it lacks the number, as one that was not written by a run may.
pub(crate) fn updates(checkpoint: &Checkpoint) -> u64 {
    let about = checkpoint.about();
    let number = about.run.get(UPDATES).and_then(Value::as_u64);
    number.filter(|updates| *updates <= about.step).unwrap_or(about.step)
}

/// Recent losses and the loss scale. Checkpoints have them, so that a resumed run decides as if it had never stopped.
#[derive(Debug)]
pub(crate) struct LoopState {
    pub losses: RecentLosses,
    pub scaler: LossScaler,
}

impl LoopState {
    /// The state with which a run begins, or resumes.
    pub fn of(options: &TrainOptions) -> Self {
        match &options.start {
            Start::Resumed(checkpoint) => Self {
                losses: RecentLosses::of(checkpoint),
                scaler: LossScaler::resumed(options.loss_scale, checkpoint),
            },
            Start::Drawn | Start::Values(_) => {
                Self { losses: RecentLosses::default(), scaler: LossScaler::new(options.loss_scale) }
            }
        }
    }

    /// For a checkpoint after so many updates, beside what it says of the run, if that is anything.
    pub fn write(&self, run: &mut Value, updates: u64) {
        if run.is_null() {
            *run = Value::Object(Map::new());
        }
        self.losses.write(run);
        self.scaler.write(run);
        if let Value::Object(run) = run {
            run.insert(UPDATES.to_owned(), updates.into());
        }
    }
}
