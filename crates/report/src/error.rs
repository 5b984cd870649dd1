//! Why there is no page.

use std::io;
use std::path::PathBuf;

use quadrille_cost::native::PriceError;
use quadrille_run::RunError;
use quadrille_spec::SpecError;
use quadrille_step::StepError;

/// What this crate's functions return when they fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A run that cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run's layout of which no program can be made.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A step that has no price.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// A run's file that says what no run writes.
    #[error("{}: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A run whose checkpoints cannot be listed: of a page they are read, so that the folder is at fault.
    #[error(transparent)]
    Checkpoints(RunError),
    /// A checkpoint whose size cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Its folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Rows that make no table.
    #[error("cannot write the table: {0}")]
    Table(String),
}

impl From<SpecError> for ReportError {
    fn from(error: SpecError) -> Self {
        Self::Price(error.into())
    }
}
