//! What can go wrong on a rank.

use quadrille_comm::{Aborted, JobFailure};
use quadrille_data::DataError;
use quadrille_spec::SpecError;
use quadrille_step::StepError;

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The job was stopped, by this rank or another.
    #[error(transparent)]
    Aborted(#[from] Aborted),
    /// A rank failed; names it, its layer and operation.
    #[error(transparent)]
    Job(#[from] JobFailure),
    /// Training data could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A description cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A program cannot be built.
    #[error(transparent)]
    Step(#[from] StepError),
    /// An operation uses a storage that holds nothing: freed, not yet made, or in flight in a collective.
    #[error("the program uses the storage of '{value}' while it is not there (freed, or in flight without a wait)")]
    NotLive {
        /// A value in that storage.
        value: String,
    },
    /// The log cannot be written.
    #[error("cannot write the log {path}: {source}")]
    Log {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The loss is not a number any more.
    #[error("the loss of step {step} is {loss}; lower the learning rate or clip gradients")]
    Diverged {
        /// The step, counted from 1.
        step: u64,
        /// The loss.
        loss: f64,
    },
}
