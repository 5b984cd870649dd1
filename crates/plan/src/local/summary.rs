//! How well predicted steps tell measured ones.

use super::order::{agreement, pearson_of_logs};
use crate::statistics::{Errors, Pair, kendall_tau, regret};

/// The best of AxoNN's evaluation.
const BEST: usize = 10;

/// Statistics of layouts of one model on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Errors of the step time, as fractions of the measured one.
    pub errors: Errors,
    /// Of the ten best; of fewer than 20 layouts also of the better half.
    pub agreement: Vec<Agreement>,
    /// Kendall's tau-b of the two orders: 1 where they are the same, 0 where they have nothing in common; `None` where
    /// one of them orders nothing.
    pub kendall_tau_b: Option<f64>,
    /// Pearson's correlation of the logarithms of the times; `None` where one side is the same everywhere.
    pub pearson_of_logs: Option<f64>,
    /// Measured time of the layout that is predicted to be fastest over that of the fastest one, less 1.
    pub regret: f64,
}

/// How many of the layouts that are predicted to be among the best are measured to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// How many count as the best: at most all.
    pub best: usize,
    /// How many are among the best of both.
    pub common: usize,
}

impl Summary {
    /// Of seconds of steps; `None` without any.
    pub fn of(pairs: &[Pair]) -> Option<Self> {
        let mut bests = vec![BEST.min(pairs.len())];
        if pairs.len() < 2 * BEST {
            bests.push(pairs.len() / 2);
        }
        // Of a single layout half is none, of twenty the half is ten.
        bests.retain(|best| *best > 0);
        bests.dedup();
        Some(Self {
            errors: Errors::of(pairs)?,
            agreement: bests.into_iter().map(|best| Agreement { best, common: agreement(pairs, best) }).collect(),
            kendall_tau_b: kendall_tau(pairs),
            pearson_of_logs: pearson_of_logs(pairs),
            regret: regret(pairs)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(f64, f64)]) -> Vec<Pair> {
        list.iter().map(|(predicted, measured)| Pair { predicted: *predicted, measured: *measured }).collect()
    }

    #[test]
    fn summary_of_a_known_list() {
        // Predicted order a b c d, measured order b a c d; one of six pairs is discordant.
        let summary = Summary::of(&pairs(&[(1.0, 2.2), (1.5, 2.0), (4.0, 4.0), (6.0, 5.0)])).unwrap();
        let errors = [1.2 / 2.2, 0.25, 0.0, 0.2];
        assert!((summary.errors.mean_absolute - errors.iter().sum::<f64>() / 4.0).abs() < 1e-12);
        assert!((summary.errors.largest - 1.2 / 2.2).abs() < 1e-12);
        assert_eq!(summary.agreement, [Agreement { best: 4, common: 4 }, Agreement { best: 2, common: 2 }]);
        assert!((summary.kendall_tau_b.unwrap() - 4.0 / 6.0).abs() < 1e-12);
        assert!((summary.regret - 0.1).abs() < 1e-12);
        assert!(summary.pearson_of_logs.is_some_and(|correlation| (0.9..1.0).contains(&correlation)));
    }

    #[test]
    fn the_better_half_counts_below_twenty_layouts() {
        let bests = |layouts: usize| {
            let list: Vec<_> = (1..=layouts).map(|at| (at as f64, at as f64)).collect();
            let summary = Summary::of(&pairs(&list)).unwrap();
            assert!(summary.agreement.iter().all(|Agreement { best, common }| best == common));
            summary.agreement.iter().map(|agreement| agreement.best).collect::<Vec<_>>()
        };
        assert_eq!(bests(1), [1]);
        assert_eq!(bests(2), [2, 1]);
        assert_eq!(bests(7), [7, 3]);
        assert_eq!(bests(19), [10, 9]);
        assert_eq!(bests(20), [10]);
        assert_eq!(bests(40), [10]);
        assert_eq!(Summary::of(&[]), None);
    }
}
