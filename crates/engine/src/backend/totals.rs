//! What a step adds up, and what follows from it for the update: one formula for every device.

/// Added to the norm before it divides the clipping limit.
const CLIP_EPSILON: f64 = 1e-6;

/// What kernels add up over a step: on this rank, from the sums over ranks on of all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// The loss, not divided by what was predicted.
    pub loss: f64,
    /// What was predicted, ignored targets left out.
    pub targets: u64,
    /// The sum of the squares of the gradient.
    pub norm_squared: f64,
}

/// How totals become an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateRule {
    /// By what number of targets gradients were divided.
    pub targets_per_step: usize,
    /// By what power of two they were multiplied.
    pub loss_scale: f64,
    /// The largest norm of a gradient.
    pub clip: Option<f64>,
    /// A gradient is applied only if the loss is no larger.
    pub loss_limit: f64,
}

/// What the optimizer does with a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Update {
    /// Whether it is applied.
    pub applied: bool,
    /// What it is multiplied with.
    pub gradient_scale: f64,
}

impl UpdateRule {
    /// By what gradients are to be multiplied because targets were ignored and the loss was scaled; exactly 1 where neither
    /// was.
    pub fn gradient_factor(&self, totals: Totals) -> f64 {
        self.targets_per_step as f64 / totals.targets as f64 / self.loss_scale
    }

    /// The global norm of the gradient, before clipping.
    pub fn gradient_norm(&self, totals: Totals) -> f64 {
        totals.norm_squared.sqrt() * self.gradient_factor(totals)
    }

    /// What becomes of the gradient, from the totals of all ranks.
    pub fn update(&self, totals: Totals) -> Update {
        let (norm, factor) = (self.gradient_norm(totals), self.gradient_factor(totals));
        let loss = totals.loss / totals.targets as f64;
        Update {
            applied: loss.is_finite() && norm.is_finite() && loss <= self.loss_limit,
            gradient_scale: factor * self.clip.map_or(1.0, |clip| (clip / (norm + CLIP_EPSILON)).min(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradients that were multiplied by a power of two give the norm, the decision and the scaled update of those that were
    /// not.
    #[test]
    fn what_gradients_were_multiplied_by_is_divided_out() {
        let plain = UpdateRule { targets_per_step: 12, loss_scale: 1.0, clip: Some(0.3), loss_limit: f64::INFINITY };
        let scaled = UpdateRule { loss_scale: 8.0, ..plain };
        let totals = |times: f64| Totals { loss: 30.0, targets: 9, norm_squared: 0.7 * times * times };
        assert_eq!(scaled.gradient_norm(totals(8.0)), plain.gradient_norm(totals(1.0)));
        let [a, b] = [plain.update(totals(1.0)), scaled.update(totals(8.0))];
        assert_eq!((a.applied, a.gradient_scale), (b.applied, 8.0 * b.gradient_scale));
        assert!(!scaled.update(totals(f64::INFINITY)).applied);
    }
}
