//! Why a question has no answer.

use quadrille_cost::native::PriceError;
use quadrille_cost::simulation::SimulationError;
use quadrille_engine::EngineError;
use quadrille_plan::native::Nothing;
use quadrille_report::ReportError;
use quadrille_run::RunError;
use quadrille_spec::SpecError;
use quadrille_step::StepError;

/// What the functions of this library return when they fail. Each names the thing, the value, the rule and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model, layout or cluster that breaks a rule.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A layout of which no program can be made.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A layout that has no price.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// A program that cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A plan without a layout.
    #[error(transparent)]
    Nothing(#[from] Nothing),
    /// The ranks' work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A run that cannot begin, or did not end well.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run that has no page.
    #[error(transparent)]
    Report(Box<ReportError>),
}

impl From<ReportError> for Error {
    fn from(error: ReportError) -> Self {
        Self::Report(Box::new(error))
    }
}
