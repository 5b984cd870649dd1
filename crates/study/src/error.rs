//! Why a study cannot begin, or has found nothing.

use quadrille_checkpoint::CheckpointError;
use quadrille_data::DataError;
use quadrille_engine::EngineError;
use quadrille_run::RunError;
use quadrille_spec::Blame;
use quadrille_step::StepError;

use crate::Refusal;

/// What this crate's functions return when they fail; [`StudyError::blame`] says whether what was asked for is at fault, or
/// the work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// What was asked for cannot be studied.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A layout of which no program can be made.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Text that cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A folder whose checkpoints cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// What studies share with runs: the machine, the tokenizer, the other processes.
    #[error(transparent)]
    Run(RunError),
    /// A model or a layout that cannot generate.
    #[error(transparent)]
    Generation(EngineError),
    /// The ranks' work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system gives no folder for a checkpoint that nobody keeps.
    #[error(transparent)]
    NoFolder(Refusal),
    /// A run that has left no checkpoint.
    #[error("no checkpoint in {folder}")]
    NoCheckpoint {
        /// Where it was looked for.
        folder: String,
    },
    /// A signal has ended the study: nothing is known of what the run at hand has memorised.
    #[error("by a signal, {when}; nothing is known of what it has memorised")]
    Stopped {
        /// The signal's number; `None` where this process watches for none, and another has got one.
        signal: Option<i32>,
        /// How far the study was.
        when: String,
    },
    /// A run that sent, computed or held other than predicted.
    #[error("the counted ledger differs from the predicted one")]
    Ledger,
}

impl From<RunError> for StudyError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<quadrille_run::Refusal> for StudyError {
    fn from(refusal: quadrille_run::Refusal) -> Self {
        Self::Run(refusal.into())
    }
}

impl StudyError {
    /// What is at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused(_)
            | Self::Step(_)
            | Self::Data(_)
            | Self::Checkpoint(_)
            | Self::Generation(_)
            | Self::Engine(EngineError::Program(_) | EngineError::OtherModel { .. }) => Blame::Input,
            Self::Run(error) => error.blame(),
            Self::Engine(_) | Self::NoFolder(_) | Self::NoCheckpoint { .. } | Self::Stopped { .. } | Self::Ledger => {
                Blame::Work
            }
        }
    }
}
