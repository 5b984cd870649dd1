//! The optimizer's constants and the learning-rate schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hyperparameters of AdamW and the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hyper {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Learning rate at the end, as a fraction of the peak.
    pub final_fraction: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u64,
    /// Steps in all: where the cosine ends.
    pub steps: u64,
    /// Decay of the gradient's running mean.
    pub beta1: f64,
    /// Decay of the squared gradient's running mean.
    pub beta2: f64,
    /// Added to the root of the squared gradient's mean.
    pub epsilon: f64,
    /// Decoupled weight decay on matrices and tables.
    pub weight_decay: f64,
    /// Largest global gradient norm; `None`: no clipping.
    pub clip: Option<f64>,
}

impl Hyper {
    /// GPT-2's customary constants with a learning rate for small models; 400 steps.
    pub const DEFAULT: Self = Self {
        learning_rate: 3e-3,
        final_fraction: 0.1,
        warmup_steps: 20,
        steps: 400,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        clip: Some(1.0),
    };
}

impl Default for Hyper {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The learning rate of `step` (from 1): linear warm-up, then a half cosine down to the final fraction.
pub fn schedule(hyper: &Hyper, step: u64) -> f64 {
    if step < hyper.warmup_steps {
        return hyper.learning_rate * step as f64 / hyper.warmup_steps as f64;
    }
    let span = hyper.steps.saturating_sub(hyper.warmup_steps).max(1);
    let progress = ((step - hyper.warmup_steps) as f64 / span as f64).min(1.0);
    let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
    hyper.learning_rate * (hyper.final_fraction + (1.0 - hyper.final_fraction) * cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_rises_and_falls() {
        let hyper = Hyper { learning_rate: 1.0, warmup_steps: 10, steps: 110, final_fraction: 0.1, ..Hyper::default() };
        assert_eq!(schedule(&hyper, 1), 0.1);
        assert_eq!(schedule(&hyper, 10), 1.0);
        assert!((schedule(&hyper, 60) - 0.55).abs() < 1e-12);
        assert!((schedule(&hyper, 110) - 0.1).abs() < 1e-12);
        assert!((schedule(&hyper, 500) - 0.1).abs() < 1e-12);
        assert_eq!(schedule(&Hyper { warmup_steps: 0, ..hyper }, 0), 1.0);
    }
}
