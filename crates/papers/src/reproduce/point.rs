//! Printed figures beside ours, and how far they deviate.

use super::printed::Printed;

/// A printed figure and ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What it is the figure of; no other point of the part has the same words.
    pub what: String,
    /// Table, figure or section of the work.
    pub source: String,
    /// As printed.
    pub published: Printed,
    /// By our formulas.
    pub ours: f64,
    /// Of both.
    pub unit: &'static str,
    /// Why ours deviates by more than the rounding of the printed figure.
    pub note: Option<String>,
}

impl Point {
    pub(super) fn new(
        what: impl Into<String>,
        source: impl Into<String>,
        published: Printed,
        ours: f64,
        unit: &'static str,
    ) -> Self {
        Self { what: what.into(), source: source.into(), published, ours, unit, note: None }
    }

    /// Adds the reason of a deviation, if there is one.
    pub(super) fn because(self, reason: &str) -> Self {
        let note = (!self.agrees()).then(|| reason.to_owned());
        Self { note, ..self }
    }

    /// Ours over the printed figure, less 1; nothing inside a printed range.
    pub fn deviation(&self) -> f64 {
        self.ours / self.published.nearest(self.ours) - 1.0
    }

    /// Whether ours is the printed figure to its last digit.
    pub fn agrees(&self) -> bool {
        (self.ours - self.published.nearest(self.ours)).abs() <= self.published.rounding() * (1.0 + 1e-9)
    }
}

/// How far the points of a part deviate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Their number.
    pub points: usize,
    /// How many agree to the last printed digit.
    pub agreeing: usize,
    /// Mean of the absolute deviations.
    pub mean: f64,
    /// The largest absolute deviation.
    pub max: f64,
}

impl Summary {
    /// Sums points up; of none all is 0.
    pub fn of(points: &[Point]) -> Self {
        let deviations = || points.iter().map(|point| point.deviation().abs());
        Self {
            points: points.len(),
            agreeing: points.iter().filter(|point| point.agrees()).count(),
            mean: deviations().sum::<f64>() / points.len().max(1) as f64,
            max: deviations().fold(0.0, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_agrees_up_to_half_of_the_last_digit() {
        let point = |ours| Point::new("x", "table 1", "44.0".parse().unwrap(), ours, "%");
        assert!(point(44.05).agrees() && point(43.95).agrees() && !point(44.06).agrees());
        assert!((point(55.0).deviation() - 0.25).abs() < 1e-12);
        assert_eq!(point(44.01).because("never told").note, None);
        assert_eq!(point(45.0).because("told").note.as_deref(), Some("told"));
    }

    #[test]
    fn summaries_count_and_average() {
        let point = |ours| Point::new("x", "table 1", "4".parse().unwrap(), ours, "");
        let summary = Summary::of(&[point(5.0), point(3.0), point(4.0), point(4.0)]);
        assert_eq!(summary, Summary { points: 4, agreeing: 2, mean: 0.125, max: 0.25 });
        assert_eq!(Summary::of(&[]), Summary { points: 0, agreeing: 0, mean: 0.0, max: 0.0 });
    }
}
