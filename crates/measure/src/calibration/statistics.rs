//! Medians of runs, and how far the runs scatter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timing::quantile;

/// The runs of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Runs {
    /// The median, in seconds.
    pub seconds: f64,
    /// Interquartile range over the median: a fraction.
    pub spread: f64,
}

impl Runs {
    /// Of at least one run, in seconds.
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let [first, median, third] = [0.25, 0.5, 0.75].map(|part| quantile(&seconds, part));
        Self { seconds: median, spread: if median > 0.0 { (third - first) / median } else { 0.0 } }
    }

    /// Of the slowest rank in each run; `by_rank` has the same runs for every rank.
    pub fn slowest(by_rank: &[&[f64]]) -> Self {
        let runs = by_rank.iter().map(|runs| runs.len()).min().unwrap_or(0);
        Self::of((0..runs).map(|run| by_rank.iter().map(|runs| runs[run]).fold(0.0, f64::max)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_the_middle_half_over_the_median() {
        assert_eq!(Runs::of(vec![5.0, 1.0, 3.0, 4.0, 2.0]), Runs { seconds: 3.0, spread: 2.0 / 3.0 });
        assert_eq!(Runs::of(vec![2.0]), Runs { seconds: 2.0, spread: 0.0 });
        assert_eq!(Runs::of(vec![1.0, 2.0]), Runs { seconds: 1.5, spread: 0.5 / 1.5 });
    }

    #[test]
    fn the_slowest_rank_counts_in_every_run() {
        assert_eq!(Runs::slowest(&[&[1.0, 9.0, 2.0], &[3.0, 1.0, 3.0]]), Runs { seconds: 3.0, spread: 1.0 });
    }
}
