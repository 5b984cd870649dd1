//! What is done about a loss or gradient that cannot be used, and how its origin is found.
//!
//! No such gradient is ever applied: the optimizer leaves parameters and moments as they are. So the passes can be run
//! again from the same state, this time looking at everything that operations write: healthy steps pay nothing.

use quadrille_checkpoint::Checkpoint;
use quadrille_step::schedule::{Action, Pass};
use quadrille_step::{Layer, Op, Operation, ValueId};
use quadrille_tensor::Element;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::View;
use crate::{Backend, BatchSource, EngineError, RankEngine};

/// What a run does after a step whose loss or gradient cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDivergence {
    /// It ends with an error.
    #[default]
    Stop,
    /// It goes on with the next step's samples.
    Skip,
}

/// When a step's gradient is not applied, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DivergencePolicy {
    /// What follows.
    pub action: OnDivergence,
    /// The largest loss, as a multiple of the mean of the last [`WINDOW`] losses; `None`: any finite loss is applied.
    pub largest_loss: Option<f64>,
}

/// Skipped steps in a row after which a run ends with an error: it learns nothing any more.
pub const MOST_SKIPPED: u64 = 50;

/// How many losses before a step say what is usual.
pub const WINDOW: usize = 50;

/// Fewer losses than this say nothing.
const FEWEST: usize = 10;

/// What a checkpoint calls them.
const RECENT: &str = "recent_losses";

/// A loss this many standard deviations above the mean of those before is a spike.
const SPIKE: f64 = 6.0;

/// The losses of the last steps that were applied.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentLosses {
    losses: std::collections::VecDeque<f64>,
}

impl RecentLosses {
    /// Those that the checkpoint was written with; none if it says none.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let losses = checkpoint.about().run.get(RECENT).and_then(Value::as_array);
        Self { losses: losses.into_iter().flatten().filter_map(Value::as_f64).collect() }
    }

    /// For a checkpoint.
    pub fn write(&self, run: &mut Value) {
        if let Value::Object(run) = run {
            run.insert(RECENT.to_owned(), self.losses.iter().copied().collect());
        }
    }

    pub fn push(&mut self, loss: f64) {
        if self.losses.len() == WINDOW {
            self.losses.pop_front();
        }
        self.losses.push_back(loss);
    }

    fn mean(&self) -> f64 {
        self.losses.iter().sum::<f64>() / self.losses.len() as f64
    }

    /// The largest loss of a step that is applied.
    pub fn limit(&self, policy: DivergencePolicy) -> f64 {
        match policy.largest_loss {
            Some(factor) if self.losses.len() >= FEWEST => factor * self.mean(),
            _ => f64::INFINITY,
        }
    }

    /// Whether a loss stands out from those before it.
    pub fn is_spike(&self, loss: f64) -> bool {
        let mean = self.mean();
        let variance = self.losses.iter().map(|each| (each - mean).powi(2)).sum::<f64>() / self.losses.len() as f64;
        self.losses.len() >= FEWEST && loss > mean + SPIKE * variance.sqrt().max(1e-3 * mean.abs())
    }
}

/// What a rank that looks at everything has found: where the first number that is not finite came from, with a number that
/// grows in the order in which numbers flow from one operation to the next.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    found: Option<(u64, String)>,
}

impl<B: Backend> RankEngine<'_, B> {
    /// Runs the passes of the last step again, whose gradient was not applied, and says which rank, layer and operation
    /// was the first to write a number that is not finite; equal on all ranks.
    pub(crate) fn first_non_finite(&mut self, batch: &BatchSource) -> Result<String, EngineError> {
        self.settle()?;
        // Ranks agree before the passes, which need all of them.
        if let Some(parameter) = self.first_told(self.non_finite_parameter()?)? {
            return Ok(parameter);
        }
        self.scan = Some(Scan::default());
        self.run_passes(batch)?;
        let scan = self.scan.take().unwrap_or_default();
        self.take_breakdown();
        let summed = || "sums of gradients over ranks; every single number was finite".to_owned();
        Ok(self.first_told(scan.found)?.unwrap_or_else(summed))
    }

    fn non_finite_parameter(&self) -> Result<Option<(u64, String)>, EngineError> {
        for parameter in &self.program.parameters {
            if !self.is_finite(parameter.value)? {
                let text = format!("the parameter {}, before the step", parameter.name);
                return Ok(Some((0, text)));
            }
        }
        Ok(None)
    }

    fn is_finite(&self, value: ValueId) -> Result<bool, EngineError> {
        // Queues of experts have as many rows as tokens choose.
        let valid = match self.queues_of(value) {
            Some(_) => self.local_elements(value),
            None => self.program.valid_elements(value, self.place),
        };
        let elements = self.read(value)?.part(0..valid);
        self.backend.download(elements, |numbers| numbers.iter().all(|number| number.to_f64().is_finite()))
    }

    /// Looks at what an operation has written, if nothing was found yet.
    pub(crate) fn look(&mut self, op: &Op, index: usize, action: Option<Action>) -> Result<(), EngineError> {
        let (Some(Scan { found: None }), Some(action)) = (&self.scan, action) else { return Ok(()) };
        let written = match &op.operation {
            // What is in flight is looked at when it lands; a rank with nothing but padding has no largest logit.
            Operation::Issue(_) | Operation::CrossEntropyMax(_) => return Ok(()),
            Operation::Wait(collective) | Operation::WaitCarried(collective) => vec![collective.output],
            operation => operation.operands().writes().to_vec(),
        };
        for value in written {
            if !self.is_finite(value)? {
                let name = &self.program.value(value).name;
                let Action { microbatch, .. } = action;
                let layer = op.layer;
                let operation = op.operation.name();
                let rank = self.context.rank();
                let text = format!("{layer}, operation {operation} ({name}), on rank {rank}, microbatch {microbatch}");
                let found = Some((self.order(op.layer, index, action), text));
                self.scan = Some(Scan { found });
                break;
            }
        }
        Ok(())
    }

    /// Microbatches one after the other; in each the layers forward, then backward.
    fn order(&self, layer: Layer, index: usize, action: Action) -> u64 {
        let last = self.program.model.layers() as u64 + 2;
        let position = match layer {
            Layer::Embedding => 0,
            Layer::Block(index) => index as u64 + 1,
            Layer::Head => last - 1,
            Layer::Step => last,
        };
        let (pass, position) = match action.pass {
            Pass::Forward => (1, position),
            Pass::Backward => (2, last - position),
            Pass::WeightGradient => (3, last - position),
        };
        ((action.microbatch as u64 * 4 + pass) << 14 | position) << 22 | index as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(losses: impl IntoIterator<Item = f64>) -> RecentLosses {
        let mut recent = RecentLosses::default();
        losses.into_iter().for_each(|loss| recent.push(loss));
        recent
    }

    #[test]
    fn a_loss_far_above_those_before_is_a_spike() {
        let noisy = recent((0..200).map(|step| 2.0 + 0.1 * f64::from(step % 3)));
        assert!(!noisy.is_spike(2.3) && noisy.is_spike(3.0) && !noisy.is_spike(0.5));
        assert!(!recent([2.0; 5]).is_spike(100.0), "too few losses to judge by");
        assert!(!recent([2.0; 50]).is_spike(2.001), "losses without noise allow for some");
    }

    #[test]
    fn the_limit_follows_the_mean_of_the_window() {
        let policy = DivergencePolicy { largest_loss: Some(3.0), ..DivergencePolicy::default() };
        assert_eq!(recent((0..500).map(|step| if step < 450 { 9.0 } else { 2.0 })).limit(policy), 6.0);
        assert_eq!(recent([2.0; 9]).limit(policy), f64::INFINITY);
        assert_eq!(recent([2.0; 50]).limit(DivergencePolicy::default()), f64::INFINITY);
    }
}
