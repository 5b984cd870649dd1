//! Statistics of relative deviations.

use std::fmt;

/// Of several relative deviations: the mean of their absolute values, the least, the greatest.
pub struct Deviation {
    pub mean: f64,
    pub least: f64,
    pub greatest: f64,
    pub count: usize,
}

impl Deviation {
    pub fn of(all: impl Iterator<Item = f64>) -> Self {
        let start = Self { mean: 0.0, least: f64::INFINITY, greatest: f64::NEG_INFINITY, count: 0 };
        let sum = all.fold(start, |sum, each| Self {
            mean: sum.mean + each.abs(),
            least: sum.least.min(each),
            greatest: sum.greatest.max(each),
            count: sum.count + 1,
        });
        Self { mean: sum.mean / sum.count as f64, ..sum }
    }

    /// Makes sure that the deviations stay as small as stated.
    pub fn assert_within(&self, name: &str, mean: f64, least: f64, greatest: f64) {
        assert!(self.mean <= mean && self.least >= least && self.greatest <= greatest, "{name}: {self}");
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, least, greatest, count } = self;
        write!(f, "{count} layouts, mean {mean:.4}, {least:+.4} to {greatest:+.4}")
    }
}
