//! Why a layout is as fast as it is: what binds, what another layout does better or worse, what faster hardware would
//! give.

use quadrille_cost::native::{Parts, PriceError};
use quadrille_spec::{Axis, Cluster, Layout, Origin};
use rayon::prelude::*;

use super::hardware;
use super::question::Cancel;
use super::setting::Setting;

/// A part of a step's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Arithmetic.
    Compute,
    /// Memory traffic.
    MemoryBound,
    /// Starting operations.
    Launch,
    /// Communication along an axis: what nothing hides, and what kernels beside it lose.
    Communication(Axis),
    /// Waiting for other stages.
    Bubble,
    /// The update.
    Optimizer,
    /// Waiting for tokens.
    DataLoading,
}

impl Part {
    /// Every part, in the order of tables.
    pub const ALL: [Self; 13] = [
        Self::Compute,
        Self::MemoryBound,
        Self::Launch,
        Self::Communication(Axis::X),
        Self::Communication(Axis::Y),
        Self::Communication(Axis::Z),
        Self::Communication(Axis::Context),
        Self::Communication(Axis::Expert),
        Self::Communication(Axis::Data),
        Self::Communication(Axis::Pipe),
        Self::Bubble,
        Self::Optimizer,
        Self::DataLoading,
    ];

    /// Its seconds.
    pub fn of(self, parts: &Parts) -> f64 {
        match self {
            Self::Compute => parts.compute,
            Self::MemoryBound => parts.memory_bound,
            Self::Launch => parts.launch,
            Self::Communication(axis) => parts.communication[axis as usize],
            Self::Bubble => parts.bubble,
            Self::Optimizer => parts.optimizer,
            Self::DataLoading => parts.data_loading,
        }
    }

    /// Its name in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::MemoryBound => "memory-bound",
            Self::Launch => "launch",
            Self::Communication(Axis::X) => "comm x",
            Self::Communication(Axis::Y) => "comm y",
            Self::Communication(Axis::Z) => "comm z",
            Self::Communication(Axis::Context) => "comm context",
            Self::Communication(Axis::Expert) => "comm expert",
            Self::Communication(Axis::Data) => "comm data",
            Self::Communication(Axis::Pipe) => "comm pipe",
            Self::Bubble => "bubble",
            Self::Optimizer => "optimizer",
            Self::DataLoading => "tokens",
        }
    }

    /// What it is, in words.
    pub fn words(self) -> String {
        match self {
            Self::Compute => "arithmetic of products, attention and element-wise work".to_owned(),
            Self::MemoryBound => "memory traffic beyond the arithmetic".to_owned(),
            Self::Launch => "starting operations".to_owned(),
            Self::Communication(axis) => {
                format!("communication along {axis} that nothing hides, or that slows kernels")
            }
            Self::Bubble => "waiting for other stages of the pipeline".to_owned(),
            Self::Optimizer => "the optimizer's update".to_owned(),
            Self::DataLoading => "waiting for tokens".to_owned(),
        }
    }
}

/// Parts of a step, and differences of steps, that are below this fraction of a step come from rounding.
pub const ROUNDING: f64 = 1e-9;

/// The parts of a step that take time, largest first, with their seconds.
pub fn binding(parts: &Parts) -> Vec<(Part, f64)> {
    let mut binding: Vec<_> =
        Part::ALL.map(|part| (part, part.of(parts))).into_iter().filter(|(_, s)| *s > 0.0).collect();
    binding.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    binding
}

/// The parts in which two layouts differ by more than rounding, largest difference first, with the seconds that the second
/// takes more.
pub fn difference(first: &Parts, second: &Parts) -> Vec<(Part, f64)> {
    let step = first.total().max(second.total());
    let more = |part: Part| (part, part.of(second) - part.of(first));
    let mut differing: Vec<_> =
        Part::ALL.map(more).into_iter().filter(|(_, more)| more.abs() > ROUNDING * step).collect();
    differing.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
    differing
}

/// What a change of one number of the hardware does to a layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensitivity {
    /// The number, by the name that [`hardware::with`] takes.
    pub field: String,
    /// Its value.
    pub from: f64,
    /// The value that it was changed to.
    pub to: f64,
    /// Seconds of a step that this saves; negative: that it costs.
    pub gained_seconds: f64,
    /// Where the number is from.
    pub origin: Origin,
}

/// Those of numbers that nobody has measured, fitted or promised.
pub fn assumed(sensitivities: &[Sensitivity]) -> impl Iterator<Item = &Sensitivity> {
    sensitivities.iter().filter(|each| each.origin == Origin::Assumed)
}

/// How much larger a number is made to see what depends on it.
const LARGER: f64 = 1.1;

/// What a layout would gain if each number of the hardware were 10 % larger (fractions at most 1), largest effect
/// first. The layout stays as it is.
///
/// # Errors
/// What cannot be priced; what nobody waits for any more.
pub fn sensitivities(setting: &Setting, layout: &Layout, cancel: &Cancel) -> Result<Vec<Sensitivity>, PriceError> {
    // What is done does not depend on the hardware.
    let problem = setting.problem()?;
    problem.check_placed(layout)?;
    let program = problem.folded(layout)?;
    let seconds = |cluster: &Cluster| -> Result<f64, PriceError> {
        Setting { cluster, ..*setting }.problem()?.seconds_of_program(&program, &|| cancel.is_cancelled())
    };
    let before = seconds(setting.cluster)?;
    let changed = |field: String| {
        let from = hardware::value(setting.cluster, &field)?;
        let larger = hardware::with(setting.cluster, &field, from * LARGER).map(|cluster| (from * LARGER, cluster));
        // A fraction of more than 1 is refused.
        let larger = larger.or_else(|_| hardware::with(setting.cluster, &field, 1.0).map(|cluster| (1.0, cluster)));
        let Ok((to, cluster)) = larger else { return Ok(None) };
        let gained_seconds = before - seconds(&cluster)?;
        let origin = setting.cluster.origin(&field);
        Ok(Some(Sensitivity { field, from, to, gained_seconds, origin }))
    };
    let fields = hardware::rates(setting.cluster).into_par_iter();
    let found: Vec<_> = fields.map(changed).collect::<Result<_, PriceError>>()?;
    let mut found: Vec<Sensitivity> = found.into_iter().flatten().collect();
    found.sort_by(|a, b| b.gained_seconds.abs().total_cmp(&a.gained_seconds.abs()));
    Ok(found)
}
