//! The learning rate over a run: a straight rise to the peak, then half a wave of the cosine down to a fraction of it.

/// How the learning rate goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRate {
    /// The highest rate, that of step `warmup_steps`.
    pub peak: f64,
    /// The last rate, as a fraction of the peak.
    pub final_fraction: f64,
    /// Steps of the rise.
    pub warmup_steps: u64,
    /// The step, counted from 1, at which the last rate is reached; it stays.
    pub steps: u64,
}

impl LearningRate {
    /// The rate of `step`, counted from 1.
    pub fn at(&self, step: u64) -> f64 {
        let warmup = self.warmup_steps;
        let end = self.steps;
        if step < warmup {
            return self.peak / warmup as f64 * step as f64;
        }
        let last = self.final_fraction * self.peak;
        if step == warmup {
            return self.peak;
        }
        if step >= end {
            return last;
        }
        let angle = std::f64::consts::PI / (end - warmup) as f64 * (step - warmup) as f64;
        last + (self.peak - last) * (1.0 + angle.cos()) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_rates() {
        let rate = LearningRate { peak: 8.0, final_fraction: 0.25, warmup_steps: 4, steps: 16 };
        // Between 8 and 2: cos(pi / 3) = 1/2 after a third, 0 after a half, -1/2 after two thirds.
        let expected = [(1, 2.0), (3, 6.0), (4, 8.0), (8, 6.5), (10, 5.0), (12, 3.5), (16, 2.0), (99, 2.0)];
        for (step, expected) in expected {
            assert!((rate.at(step) - expected).abs() < 1e-14, "step {step}: {}", rate.at(step));
        }
        let plain = LearningRate { warmup_steps: 0, ..rate };
        assert!((plain.at(8) - 5.0).abs() < 1e-14);
        let short = LearningRate { warmup_steps: 4, steps: 2, ..rate };
        assert_eq!([3, 4, 5].map(|step| short.at(step)), [6.0, 8.0, 2.0]);
    }
}
