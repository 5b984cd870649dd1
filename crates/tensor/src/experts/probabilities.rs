//! Probabilities of experts from a row of logits.

use super::RouterRule;
use crate::element::Element;
use crate::lanes::{largest, sum};

impl RouterRule {
    /// p = each expert's probability.
    #[inline(always)]
    pub(super) fn probabilities<T: Element>(self, logits: &[T], p: &mut [T]) {
        if self.sigmoid {
            p.iter_mut().zip(logits).for_each(|(p, x)| *p = T::ONE / (T::ONE + (-*x).exp()));
        } else {
            softmax(logits, p);
        }
    }
}

/// p = softmax(logits).
#[inline(always)]
pub(super) fn softmax<T: Element>(logits: &[T], p: &mut [T]) {
    let most = largest(logits);
    p.iter_mut().zip(logits).for_each(|(p, x)| *p = (*x - most).exp());
    divide(p);
}

/// Divides p by its sum, which is returned.
#[inline(always)]
pub(super) fn divide<T: Element>(p: &mut [T]) -> T {
    let total = sum(p, |p| p);
    p.iter_mut().for_each(|p| *p = *p / total);
    total
}

/// ln of the sum of e^logit.
#[inline(always)]
pub(super) fn log_sum_exp<T: Element>(logits: &[T]) -> f64 {
    let most = largest(logits);
    most.to_f64() + sum(logits, |x| (x - most).exp()).to_f64().ln()
}
