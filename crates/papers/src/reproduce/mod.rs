//! Figures printed in the source works beside ours: what the published models of this crate and our schedules
//! give for the same input.
//!
//! Printed figures are data, in `published/` of this crate, with the table or section that each is from. A figure that
//! does not follow from the formulas and other printed figures (a measured time, say) is not there.

mod atp;
mod axonn;
mod bubble;
mod lbnl;
mod megatron;
mod printed;

use quadrille_spec::SpecError;
use serde::de::DeserializeOwned;

pub use printed::Printed;

/// A source work whose figures are reproduced.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// What users call it.
    pub name: &'static str,
    /// The work.
    pub work: &'static str,
    points: fn() -> Result<Vec<Point>, SpecError>,
}

/// All parts, in alphabetical order. A new one is a line here and a file beside this one.
pub const PARTS: [Part; 4] = [
    Part { name: "atp", work: "Cheng et al. (ATP), 2023", points: atp::points },
    Part { name: "axonn", work: "Singh et al. (AxoNN), SC 2024", points: axonn::points },
    Part { name: "lbnl", work: "Subramanian et al. (LBNL), 2024", points: lbnl::points },
    Part { name: "megatron", work: "Narayanan et al. (Megatron-LM PTD-P), SC 2021", points: megatron::points },
];

impl Part {
    /// Computes the part's points, in the order of the work's tables.
    ///
    /// # Errors
    /// None for the data that come with the crate, which its tests read.
    pub fn points(&self) -> Result<Vec<Point>, SpecError> {
        (self.points)()
    }
}

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
    fn new(
        what: impl Into<String>,
        source: impl Into<String>,
        published: Printed,
        ours: f64,
        unit: &'static str,
    ) -> Self {
        Self { what: what.into(), source: source.into(), published, ours, unit, note: None }
    }

    /// Adds the reason of a deviation, if there is one.
    fn because(self, reason: &str) -> Self {
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

/// Reads a file of printed figures.
fn read<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, SpecError> {
    toml::from_str(text).map_err(|error| SpecError::Syntax {
        what: "published figures",
        text: name.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn points(name: &str) -> Vec<Point> {
        PARTS.iter().find(|part| part.name == name).unwrap().points().unwrap()
    }

    #[test]
    fn points_are_named_once_and_deviations_have_a_reason() {
        for part in PARTS {
            let points = part.points().unwrap();
            let names: BTreeSet<&str> = points.iter().map(|point| point.what.as_str()).collect();
            assert_eq!(names.len(), points.len(), "{}", part.name);
            for point in &points {
                assert!(point.ours.is_finite() && !point.source.is_empty(), "{point:?}");
                assert_eq!(
                    point.note.as_ref().is_none_or(String::is_empty),
                    point.agrees(),
                    "{}: {point:?}",
                    part.name
                );
            }
        }
    }

    #[test]
    fn deviations_are_as_large_as_expected() {
        // Mean and maximum in percent; a formula that changes moves them.
        let of = |name| {
            let Summary { points, agreeing, mean, max } = Summary::of(&points(name));
            (points, agreeing, format!("{:.2} {:.1}", 100.0 * mean, 100.0 * max))
        };
        assert_eq!(of("axonn"), (56, 23, "1.22 22.2".to_owned()));
        assert_eq!(of("atp"), (46, 34, "4.64 100.0".to_owned()));
        // What deviates is what the paper states in words.
        assert_eq!(of("lbnl"), (180, 173, "1.04 64.2".to_owned()));
        assert_eq!(of("megatron"), (57, 46, "0.39 2.8".to_owned()));
    }

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

    #[test]
    fn unreadable_figures_are_named() {
        #[derive(Debug, serde::Deserialize)]
        struct File {
            days: Printed,
        }
        let message = |text: &str| read::<File>("x.toml", text).unwrap_err().to_string();
        assert_eq!(read::<File>("x.toml", "days = \"4.5\"").unwrap().days.nearest(0.0), 4.5);
        assert!(message("days = \"many\"").contains("published figures from 'x.toml'"));
        assert!(message("days = \"0\"").contains("a printed figure is a positive number"));
    }
}
