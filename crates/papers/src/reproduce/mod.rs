//! Figures printed in the source works beside ours: what the published models of this crate and our step
//! programs give for the same input.
//!
//! Printed figures are data, in `published/` of this crate, with the table or section that each is from. A figure that
//! does not follow from the formulas and other printed figures (a measured time, say) is not there. Where a work prints an equation
//! without an example, ours stands beside what the equation gives for an example of ours, and says so.

mod atp;
mod axonn;
mod bubble;
mod experts;
mod lbnl;
mod megatron;
mod memory;
mod point;
mod printed;
mod samo;
mod ted;

use quadrille_spec::SpecError;

pub use point::{Point, Summary};
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

/// ATP.
pub const ATP: Part = Part { name: "atp", work: "Cheng et al. (ATP), 2023", points: atp::points };
/// AxoNN.
pub const AXONN: Part = Part {
    name: "axonn",
    work: "Singh et al. (AxoNN), SC 2024, and chapter 3 of Singh's dissertation, 2025",
    points: axonn::points,
};
/// LBNL's model.
pub const LBNL: Part = Part { name: "lbnl", work: "Subramanian et al. (LBNL), 2024", points: lbnl::points };
/// Megatron-LM.
pub const MEGATRON: Part =
    Part { name: "megatron", work: "Narayanan et al. (Megatron-LM PTD-P), SC 2021", points: megatron::points };
/// SAMO.
pub const SAMO: Part =
    Part { name: "samo", work: "Singh's dissertation, 2025, chapter 4 (SAMO)", points: samo::points };
/// TED.
pub const TED: Part = Part { name: "ted", work: "Singh's dissertation, 2025, chapter 7 (TED)", points: ted::points };

/// All parts, in alphabetical order. A new one is a constant above, a name here and a file beside this one.
pub const PARTS: [Part; 6] = [ATP, AXONN, LBNL, MEGATRON, SAMO, TED];

impl Part {
    /// Computes the part's points, in the order of the work's tables.
    ///
    /// # Errors
    /// None for the data that come with the crate, which its tests read.
    pub fn points(&self) -> Result<Vec<Point>, SpecError> {
        (self.points)()
    }
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
        // Of the dissertation's 18, blocks between kept inputs deviate most.
        assert_eq!(of("axonn"), (74, 34, "4.10 75.0".to_owned()));
        assert_eq!(of("atp"), (46, 34, "4.64 100.0".to_owned()));
        // What deviates is what the paper states in words.
        assert_eq!(of("lbnl"), (180, 173, "1.04 64.2".to_owned()));
        assert_eq!(of("megatron"), (57, 46, "0.39 2.8".to_owned()));
        // A caption that contradicts its table.
        assert_eq!(of("samo"), (37, 26, "14.04 100.0".to_owned()));
        // Spikes of memory and shares of time were measured; a cap of memory that does not follow from its tile.
        assert_eq!(of("ted"), (55, 28, "10.29 99.5".to_owned()));
    }
}
