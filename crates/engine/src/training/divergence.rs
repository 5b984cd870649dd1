//! Policy for steps whose loss or gradient cannot be used. No such gradient is ever applied: the optimizer leaves parameters
//! and moments as they are.

use quadrille_checkpoint::Checkpoint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
