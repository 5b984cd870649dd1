//! Why a run cannot begin, or did not end well.

use std::io;
use std::path::{Path, PathBuf};

use quadrille_checkpoint::CheckpointError;
use quadrille_cost::native::PriceError;
use quadrille_data::DataError;
use quadrille_engine::EngineError;
use quadrille_files::{FileError, reason};
use quadrille_hugging_face::HuggingFaceError;
use quadrille_spec::{Blame, LedgerDifference, SpecError};
use quadrille_step::StepError;

use crate::Refusal;

/// What this crate's functions return when they fail; [`RunError::blame`] says whether what was asked for is at fault, or the
/// work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// What was asked for cannot be used.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A model or layout that breaks a rule.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A file that describes what breaks a rule.
    #[error("{}{}: {error}", path.display(), line.map_or(String::new(), |line| format!(", line {line}")))]
    Description {
        /// The file.
        path: PathBuf,
        /// Where in it, if it is one line's fault; from 1.
        line: Option<usize>,
        /// What is wrong.
        error: Box<SpecError>,
    },
    /// A grid that is to be chosen by prices, and has none.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// A layout of which no program can be made.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A small file that cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Data that cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Checkpoints that cannot be read, or whose folder cannot be.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Files of a model of the transformers library that cannot be copied.
    #[error(transparent)]
    HuggingFace(#[from] HuggingFaceError),
    /// The ranks' work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What no generation can be made of: prompts, options, a model or a layout.
    #[error(transparent)]
    Ungenerated(EngineError),
    /// A file of the run that cannot be written.
    #[error("cannot write {what}{}: {}", path.display(), reason(error))]
    Unwritten {
        /// What it is called before its name, e.g. `the trace `.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A folder from which what killed runs have left cannot be removed.
    #[error("cannot clean {}: {error}", path.display())]
    Unclean {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A document that has no text.
    #[error("a document of the run cannot be written")]
    Document(#[source] serde_json::Error),
    /// The system lets nobody wait for its signals.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// A run that has counted other than was predicted.
    #[error("the counted ledger differs from the predicted one: {0}")]
    Ledger(LedgerDifference),
}

impl RunError {
    /// What is at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Price(error) => error.blame(),
            Self::Refused(_)
            | Self::Spec(_)
            | Self::Description { .. }
            | Self::Step(_)
            | Self::File(_)
            | Self::Data(_)
            | Self::Ungenerated(_)
            | Self::Engine(
                EngineError::Program(_) | EngineError::OtherModel { .. } | EngineError::OtherAlgorithms { .. },
            ) => Blame::Input,
            Self::HuggingFace(
                HuggingFaceError::Io { action, .. } | HuggingFaceError::Checkpoint(CheckpointError::Io { action, .. }),
            ) if *action != "read" => Blame::Work,
            Self::HuggingFace(_) => Blame::Input,
            Self::Checkpoint(_)
            | Self::Engine(_)
            | Self::Unwritten { .. }
            | Self::Unclean { .. }
            | Self::Document(_)
            | Self::Signals(_)
            | Self::Ledger(_) => Blame::Work,
        }
    }

    /// A file that describes what breaks a rule; made for `map_err`.
    pub(crate) fn description(path: &Path) -> impl FnOnce(SpecError) -> Self {
        move |error| Self::Description { path: path.to_owned(), line: None, error: error.into() }
    }

    /// A file that cannot be written; made for `map_err`.
    pub(crate) fn unwritten(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Unwritten { what: "", path: path.to_owned(), error }
    }
}
