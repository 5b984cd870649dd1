//! Why something cannot be measured.

use quadrille_cost::native::PriceError;
use quadrille_cost::simulation::SimulationError;
use quadrille_engine::EngineError;
use quadrille_plan::NoGrid;
use quadrille_plan::native::Nothing;
use quadrille_run::{self as run, RunError};
use quadrille_spec::{Blame, SpecError};
use quadrille_step::StepError;

use crate::Refusal;

/// What this crate's functions return when they fail; [`MeasureError::blame`] says whether what was asked for is at fault, or
/// the work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// What was asked for cannot be measured.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A model, layout or cluster that breaks a rule.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A layout of which no program can be made.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A step that has no price.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// A step that cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A search that finds nothing.
    #[error(transparent)]
    Nothing(#[from] Nothing),
    /// No grid of a number of ranks is legal.
    #[error(transparent)]
    NoGrid(#[from] NoGrid),
    /// What was asked for is not what a run can use, or a description that cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The system gives no threads.
    #[error(transparent)]
    Pool(#[from] rayon::ThreadPoolBuildError),
    /// The ranks' work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A comparison of layouts of which fewer than two have a prediction.
    #[error("{predicted} layouts can be predicted{}; a comparison needs at least 2", why(refused.as_ref()))]
    TooFew {
        /// Those that have one.
        predicted: usize,
        /// Why the first of the others has none.
        refused: Option<PriceError>,
    },
    /// A rank's failure while a layout ran; the source says what it was.
    #[error("{grid}")]
    Layout {
        /// The grid of the layout.
        grid: String,
        /// What failed.
        #[source]
        error: Box<MeasureError>,
    },
    /// A system that does not say how much memory is free.
    #[error("cannot tell how much memory is free: /proc/meminfo does not say MemAvailable")]
    UnknownMemory,
    /// A run without a step that counts.
    #[error("no step was measured")]
    NoStep,
    /// A comparison without any prediction.
    #[error("no layout has a prediction")]
    Unpredicted,
    /// A run that sent, computed or held other than predicted.
    #[error("{grid}: counted and predicted ledgers differ")]
    Ledger {
        /// The grid of the layout.
        grid: String,
    },
    /// A result asks for measurements that were not made.
    #[error("no {what} were measured")]
    Unmeasured {
        /// What is missing, in the plural.
        what: &'static str,
    },
}

impl From<run::Refusal> for MeasureError {
    fn from(refusal: run::Refusal) -> Self {
        RunError::from(refusal).into()
    }
}

impl MeasureError {
    /// What is at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Run(error) => error.blame(),
            Self::Price(error) => error.blame(),
            Self::Refused(_)
            | Self::TooFew { .. }
            | Self::Spec(_)
            | Self::Step(_)
            | Self::Nothing(_)
            | Self::NoGrid(_) => Blame::Input,
            Self::Simulation(_)
            | Self::Pool(_)
            | Self::Engine(_)
            | Self::Layout { .. }
            | Self::UnknownMemory
            | Self::NoStep
            | Self::Unpredicted
            | Self::Ledger { .. }
            | Self::Unmeasured { .. } => Blame::Work,
        }
    }

    /// Names the layout that ran, where the work is at fault.
    pub(crate) fn of_layout(self, grid: String) -> Self {
        match self.blame() {
            Blame::Input => self,
            Blame::Work => Self::Layout { grid, error: Box::new(self) },
        }
    }
}

fn why(refused: Option<&PriceError>) -> String {
    refused.map_or_else(String::new, |refused| format!(" ({refused})"))
}
