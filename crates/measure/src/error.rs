//! Why something cannot be measured.

use quadrille_cost::native::PriceError;
use quadrille_cost::simulation::SimulationError;
use quadrille_engine::EngineError;
use quadrille_spec::SpecError;
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
    /// The ranks' work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A result asks for measurements that were not made.
    #[error("no {what} were measured")]
    Unmeasured {
        /// What is missing, in the plural.
        what: &'static str,
    },
}

/// What is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// What was asked for: asking again as before fails again.
    Input,
    /// The work: a rank, the machine.
    Work,
}

impl MeasureError {
    /// What is at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused(_)
            | Self::Spec(_)
            | Self::Step(_)
            | Self::Price(PriceError::Spec(_) | PriceError::Step(_)) => Blame::Input,
            Self::Price(PriceError::Simulation(_))
            | Self::Simulation(_)
            | Self::Engine(_)
            | Self::Unmeasured { .. } => Blame::Work,
        }
    }
}
