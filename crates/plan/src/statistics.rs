//! How well predictions meet measurements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
/// A predicted and a measured quantity of one unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// By the model.
    pub predicted: f64,
    /// By the source.
    pub measured: f64,
}

impl Pair {
    /// Predicted over measured, less 1.
    pub fn error(self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Errors of a set of pairs, as fractions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Errors {
    /// Pairs.
    pub count: usize,
    /// Mean of the absolute errors.
    pub mean_absolute: f64,
    /// Mean of the errors: above 0 where predictions are too large.
    pub bias: f64,
    /// The largest absolute error.
    pub largest: f64,
}

impl Errors {
    /// Of a set of pairs; `None` of an empty one.
    pub fn of(pairs: &[Pair]) -> Option<Self> {
        if pairs.is_empty() {
            return None;
        }
        let count = pairs.len() as f64;
        let errors = || pairs.iter().map(|pair| pair.error());
        Some(Self {
            count: pairs.len(),
            mean_absolute: errors().map(f64::abs).sum::<f64>() / count,
            bias: errors().sum::<f64>() / count,
            largest: errors().map(f64::abs).fold(0.0, f64::max),
        })
    }
}

/// Kendall's tau-b of predicted and measured: concordant less discordant over the geometric mean of the pairs that
/// either side orders. `None` where a side orders nothing.
pub fn kendall_tau(pairs: &[Pair]) -> Option<f64> {
    let mut difference = 0_i64;
    let mut by_predicted = 0_u64;
    let mut by_measured = 0_u64;
    for (at, a) in pairs.iter().enumerate() {
        for b in &pairs[at + 1..] {
            let order = |x: f64, y: f64| i64::from(x > y) - i64::from(x < y);
            let [predicted, measured] = [order(a.predicted, b.predicted), order(a.measured, b.measured)];
            difference += predicted * measured;
            by_predicted += predicted.unsigned_abs();
            by_measured += measured.unsigned_abs();
        }
    }
    let orders = (by_predicted as f64 * by_measured as f64).sqrt();
    (orders > 0.0).then(|| difference as f64 / orders)
}

/// What the layout that the model puts first costs beyond the best: its measured value over the least measured one,
/// less 1. `None` of an empty set.
pub fn regret(pairs: &[Pair]) -> Option<f64> {
    let chosen = pairs.iter().min_by(|a, b| a.predicted.total_cmp(&b.predicted))?;
    let best = pairs.iter().map(|pair| pair.measured).fold(f64::INFINITY, f64::min);
    Some(chosen.measured / best - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(f64, f64)]) -> Vec<Pair> {
        list.iter().map(|(predicted, measured)| Pair { predicted: *predicted, measured: *measured }).collect()
    }

    #[test]
    fn errors_of_a_known_list() {
        let errors = Errors::of(&pairs(&[(11.0, 10.0), (8.0, 10.0), (10.0, 10.0), (12.5, 10.0)])).unwrap();
        assert_eq!(errors.count, 4);
        assert!((errors.mean_absolute - 0.1375).abs() < 1e-12 && (errors.bias - 0.0375).abs() < 1e-12);
        assert!((errors.largest - 0.25).abs() < 1e-12);
        assert_eq!(Errors::of(&[]), None);
    }

    #[test]
    fn tau_of_known_lists() {
        let tau = |list: &[(f64, f64)]| kendall_tau(&pairs(list));
        assert_eq!(tau(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]), Some(1.0));
        assert_eq!(tau(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), Some(-1.0));
        // One of six pairs is discordant.
        assert_eq!(tau(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (4.0, 4.0)]), Some(4.0 / 6.0));
        // The first two predictions are equal: 2 concordant of 2 ordered and 3 ordered.
        assert_eq!(tau(&[(1.0, 1.0), (1.0, 2.0), (3.0, 3.0)]), Some(2.0 / 6.0_f64.sqrt()));
        assert_eq!((tau(&[(1.0, 1.0)]), tau(&[(1.0, 1.0), (1.0, 2.0)])), (None, None));
    }

    #[test]
    fn regret_of_known_lists() {
        assert_eq!(regret(&pairs(&[(1.0, 12.0), (2.0, 10.0), (3.0, 20.0)])), Some(12.0 / 10.0 - 1.0));
        assert_eq!(regret(&pairs(&[(2.0, 12.0), (1.0, 10.0)])), Some(0.0));
        assert_eq!(regret(&[]), None);
    }
}
