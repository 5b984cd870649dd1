//! What a run carries from step to step beside parameters and moments.

use serde_json::{Map, Value};

use crate::divergence::RecentLosses;
use crate::loss_scale::LossScaler;
use crate::{Start, TrainOptions};

/// Kept in checkpoints, so that a run that goes on decides as if it had never stopped.
#[derive(Debug)]
pub(crate) struct Carried {
    pub losses: RecentLosses,
    pub scaler: LossScaler,
}

impl Carried {
    /// That with which a run begins, or goes on.
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

    /// For a checkpoint, beside what it says of the run, if that is anything.
    pub fn write(&self, run: &mut Value) {
        if run.is_null() {
            *run = Value::Object(Map::new());
        }
        self.losses.write(run);
        self.scaler.write(run);
    }
}
