//! Events, records and results of a training run.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use quadrille_spec::{AxesLedger, Ledger, LedgerDifference, RankLedger};
use quadrille_step::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Evaluation, MatmulChoices, RankTrace, Routed};

/// What a run tells as it goes.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// A step is done.
    Step(&'a StepRecord),
    /// A step's gradient was not applied, and the run goes on.
    Skipped {
        /// The step.
        step: u64,
        /// What was wrong, and where it came from.
        reason: String,
    },
    /// A step's gradient was not applied, and the run ends with an error.
    Diverged {
        /// The step.
        step: u64,
        /// What was wrong, and where it came from.
        reason: String,
    },
    /// The loss over the validation samples, after a step.
    Validated(u64, Evaluation),
    /// The checkpoint of a step is complete.
    Saved {
        /// The step.
        step: u64,
        /// Why older checkpoints could not be removed, if so.
        unremoved: Option<String>,
    },
    /// The checkpoint of a step could not be written, and the run goes on.
    NotSaved {
        /// The step.
        step: u64,
        /// Why.
        reason: String,
    },
    /// The run ends after this step, as it was asked to.
    Stopped(u64),
}

/// A step as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRecord {
    /// From 1.
    pub step: u64,
    /// Mean loss in nats; null in JSON where it is not finite.
    #[serde(with = "crate::training::not_finite")]
    #[schemars(with = "Option<f64>")]
    pub loss: f64,
    /// Global gradient norm before clipping; null in JSON where it is not finite.
    #[serde(with = "crate::training::not_finite")]
    #[schemars(with = "Option<f64>")]
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Target tokens up to and with this step.
    pub tokens: u64,
    /// Seconds that this step took.
    pub seconds: f64,
    /// This step's target tokens per second.
    pub tokens_per_second: f64,
    /// Whether the gradient was applied.
    pub applied: bool,
    /// Whether the update was begun before the gradient's norm was known, and done again since that was clipped.
    pub repeated: bool,
    /// Whether the loss stands out from those before.
    pub spike: bool,
    /// By what gradients were multiplied until the update, if they were.
    pub loss_scale: Option<u32>,
    /// Whether they were not finite for that reason: then the step was skipped and the next factor is smaller.
    pub overflow: bool,
    /// What routers have lost and dropped, if the model has experts.
    pub router: Option<Routed>,
}

impl StepRecord {
    /// What became of an update that was begun before the norm was known.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.applied, self.repeated)
    }
}

/// Operation kinds in which a rank waits for others: collectives that computation did not hide, messages of a pipeline,
/// and sums over ranks of single numbers.
pub const WAITING: [&str; 5] = ["wait", "wait-carried", "reduce-scalar", "receive", "release"];

/// What a step took on one rank, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RankStep {
    /// From its begin to its end on this rank.
    pub seconds: f64,
    /// Of them, in operations.
    pub operations: f64,
    /// Of those, in operations of [`WAITING`].
    pub waiting: f64,
}

impl RankStep {
    /// A step of so many seconds, by what its operation kinds took.
    pub(crate) fn new(seconds: f64, breakdown: &BTreeMap<&'static str, f64>) -> Self {
        let waiting = WAITING.iter().filter_map(|name| breakdown.get(name)).sum();
        Self { seconds, operations: breakdown.values().sum(), waiting }
    }
}

/// What one rank reports at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankReport {
    /// The last step's predicted ledger; `None` after no step.
    pub predicted: Option<RankLedger>,
    /// The last step's counted ledger; `None` after no step.
    pub ledger: Option<RankLedger>,
    /// Transfers of all steps.
    pub total: AxesLedger,
    /// The first count of any step that was not the predicted one.
    pub difference: Option<LedgerDifference>,
    /// Every step's time on this rank; ranks of a pipeline end a step at different times.
    pub steps: Vec<RankStep>,
    /// Seconds per operation kind, over all steps but the first.
    pub breakdown: BTreeMap<String, f64>,
    /// How often each expert of each block was chosen in all steps, by all ranks' tokens.
    pub chosen: Vec<u64>,
    /// Choices of tuned products.
    pub matmuls: MatmulChoices,
    /// The last step, if it was to be recorded.
    pub trace: Option<RankTrace>,
    /// What the rank has on its device; `None`: ranks have the host's memory.
    pub device_memory: Option<DeviceUse>,
    /// What was done with graphs of its kernels; `None`: none are made.
    pub device_graphs: Option<GraphUse>,
    pub(crate) records: Vec<StepRecord>,
}

/// Bytes of a rank on a device that has memory of its own, after the first step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceUse {
    /// Buffers of all programs that it has run.
    pub buffers: u64,
    /// What lies between them.
    pub alignment: u64,
    /// What products of the library work in.
    pub workspace: u64,
    /// Samples, tables, and what kernels and collectives need between two stages.
    pub scratch: u64,
    /// Of the host's memory, pinned for what goes to the device and comes from it.
    pub pinned: u64,
    /// In use on the device by anybody: with contexts, compiled kernels and other ranks.
    pub used: u64,
    /// Of the device.
    pub total: u64,
}

/// What a rank did with graphs of its kernels: rows of commands that its device keeps, to be started all at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphUse {
    /// Graphs that were made.
    pub made: u64,
    /// How often one was run.
    pub runs: u64,
    /// Kernels of them that got other words.
    pub updates: u64,
    /// Rows that were sent command by command, for good, since the device made or changed no graph of them.
    pub refused: u64,
}

impl AddAssign for GraphUse {
    fn add_assign(&mut self, other: Self) {
        self.made += other.made;
        self.runs += other.runs;
        self.updates += other.updates;
        self.refused += other.refused;
    }
}

/// What a job gave.
#[derive(Debug, Clone)]
pub struct TrainOutcome {
    /// Every step.
    pub records: Vec<StepRecord>,
    /// The predicted ledgers of the last step; those of steps of which something is repeated or taken back differ.
    pub predicted: Ledger,
    /// The counted ledgers of the last step; `None` where no step was left to do.
    pub counted: Option<Ledger>,
    /// The first count of any rank and step that was not the predicted one; `None` where all were, as integers.
    pub difference: Option<LedgerDifference>,
    /// By rank.
    pub ranks: Vec<RankReport>,
}

impl TrainOutcome {
    /// What all ranks did with graphs of their kernels; `None`: none are made.
    pub fn device_graphs(&self) -> Option<GraphUse> {
        self.ranks.iter().filter_map(|rank| rank.device_graphs).reduce(|mut sum, one| {
            sum += one;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_a_part_of_a_steps_operations() {
        let breakdown = BTreeMap::from([("gemm", 4.0), ("issue", 0.5), ("receive", 1.0), ("wait", 2.0)]);
        assert_eq!(RankStep::new(8.0, &breakdown), RankStep { seconds: 8.0, operations: 7.5, waiting: 3.0 });
    }

    #[test]
    fn steps_of_models_with_and_without_experts_pass_between_processes() {
        let most_at = [1, 3];
        let routed =
            Routed { balance: 1.5, z: f64::INFINITY, dropped: 0.25, most: 2.5, most_at, idle: 1, imbalance: 1.25 };
        for router in [None, Some(routed)] {
            let step = StepRecord {
                step: 3,
                loss: f64::INFINITY,
                grad_norm: 0.5,
                lr: 1e-3,
                tokens: 64,
                seconds: 0.5,
                tokens_per_second: 128.0,
                applied: true,
                repeated: false,
                spike: false,
                loss_scale: None,
                overflow: true,
                router,
            };
            let sent = postcard::to_stdvec(&step).unwrap();
            assert_eq!(postcard::from_bytes::<StepRecord>(&sent).unwrap(), step);
        }
    }
}
