//! Totals of a step, and the update that follows from them: one formula for every device.

use quadrille_spec::IGNORED;
use quadrille_step::{Scalar, Verdict};

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
    /// The balance losses of routers, summed over tokens and blocks.
    pub balance: f64,
    /// Their z losses.
    pub router_z: f64,
    /// Choices of tokens, in all blocks, that had no place at their expert.
    pub dropped: u64,
}

impl Totals {
    /// How many sums of routers there are before the loads of experts.
    pub const OF_ROUTERS: usize = 3;

    /// Summands of a scalar from this rank; the loads of experts go on from there, and the rank itself counts its batch.
    pub fn of(&self, scalar: Scalar) -> Vec<f64> {
        match scalar {
            Scalar::Loss => vec![self.loss, self.targets as f64],
            Scalar::GradientNormSquared => vec![self.norm_squared],
            Scalar::Routers { .. } => vec![self.balance, self.router_z, self.dropped as f64],
            Scalar::Batch => Vec::new(),
        }
    }

    /// With these sums over ranks.
    pub fn with(self, scalar: Scalar, summed: &[f64]) -> Self {
        match scalar {
            Scalar::Loss => Self { loss: summed[0], targets: summed[1] as u64, ..self },
            Scalar::GradientNormSquared => Self { norm_squared: summed[0], ..self },
            Scalar::Routers { .. } => {
                Self { balance: summed[0], router_z: summed[1], dropped: summed[2] as u64, ..self }
            }
            Scalar::Batch => self,
        }
    }
}

/// Targets that are not ignored.
pub(super) fn counted(targets: &[u32]) -> u64 {
    targets.iter().filter(|target| **target != IGNORED).count() as u64
}

/// How totals become an update.
///
/// An update may be begun when all but the norm is known: then it is the one of a gradient that is not clipped.
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

    /// What becomes of a gradient that is finite and not clipped; from the loss of all ranks.
    pub fn attempt(&self, totals: Totals) -> Update {
        let loss = totals.loss / totals.targets as f64;
        Update { applied: loss.is_finite() && loss <= self.loss_limit, gradient_scale: self.gradient_factor(totals) }
    }

    /// What becomes of the gradient, from the totals of all ranks.
    pub fn update(&self, totals: Totals) -> Update {
        let norm = self.gradient_norm(totals);
        let Update { applied, gradient_scale } = self.attempt(totals);
        Update {
            applied: applied && norm.is_finite(),
            gradient_scale: gradient_scale * self.clip.map_or(1.0, |clip| (clip / (norm + CLIP_EPSILON)).min(1.0)),
        }
    }

    /// What becomes of an attempt, from the totals of all ranks.
    pub fn verdict(&self, totals: Totals) -> Verdict {
        let update = self.update(totals);
        if !update.applied {
            Verdict::Restored
        } else if update == self.attempt(totals) {
            Verdict::Kept
        } else {
            Verdict::Repeated
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
        let totals =
            |times: f64| Totals { loss: 30.0, targets: 9, norm_squared: 0.7 * times * times, ..Totals::default() };
        assert_eq!(scaled.gradient_norm(totals(8.0)), plain.gradient_norm(totals(1.0)));
        let [a, b] = [plain.update(totals(1.0)), scaled.update(totals(8.0))];
        assert_eq!((a.applied, a.gradient_scale), (b.applied, 8.0 * b.gradient_scale));
        assert!(!scaled.update(totals(f64::INFINITY)).applied);
    }

    #[test]
    fn an_attempt_stays_where_nothing_is_clipped_and_is_taken_back_where_nothing_is_applied() {
        let rule = UpdateRule { targets_per_step: 12, loss_scale: 8.0, clip: Some(1.0), loss_limit: 5.0 };
        let totals = Totals { loss: 30.0, targets: 9, norm_squared: 0.7, ..Totals::default() };
        assert_eq!(rule.verdict(totals), Verdict::Kept);
        assert_eq!(rule.verdict(Totals { norm_squared: 1e4, ..totals }), Verdict::Repeated);
        assert_eq!(UpdateRule { clip: None, ..rule }.verdict(Totals { norm_squared: 1e4, ..totals }), Verdict::Kept);
        for bad in [Totals { norm_squared: f64::NAN, ..totals }, Totals { loss: 50.0, ..totals }] {
            assert_eq!(rule.verdict(bad), Verdict::Restored);
        }
    }
}
