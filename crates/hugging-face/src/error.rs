//! Everything that can go wrong between a checkpoint and a folder of the transformers library.

use std::io;
use std::path::{Path, PathBuf};

use quadrille_checkpoint::CheckpointError;
use quadrille_files::FileError;
use quadrille_spec::SpecError;

/// What this crate's functions return when they fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HuggingFaceError {
    /// A system call on a file or folder failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried: "read", "create", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A file that cannot be opened or read as what it was to be.
    #[error(transparent)]
    File(#[from] FileError),

    /// A folder without a model that can be read, or that cannot be written to.
    #[error("{}: {rule}; {remedy}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        rule: String,
        /// What to do instead.
        remedy: String,
    },

    /// A file that is not what its name says: cut off, damaged, or of another kind.
    #[error("{} is damaged: {reason}; copy or download it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },

    /// A configuration of a model that cannot be expressed here.
    #[error("cannot use {}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Which field, and why.
        source: SpecError,
    },

    /// A tensor that is not there, should not be there, or is not what the configuration says.
    #[error("{}: tensor {tensor}: {rule}; {remedy}", path.display())]
    Tensor {
        /// The file, or the folder where the file is not known.
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// What is wrong with it.
        rule: String,
        /// What to do instead.
        remedy: String,
    },

    /// A model that no family of the library computes.
    #[error("{field} = {value}: {rule}; export a model that the library has")]
    Inexpressible {
        /// The field of the model.
        field: &'static str,
        /// Its value.
        value: String,
        /// What the families have.
        rule: String,
    },

    /// A number that is finite here and would be infinite there.
    #[error("tensor {tensor} holds {value:e}, more than the largest number of {dtype}; {remedy}")]
    Overflow {
        /// The tensor's name in the library.
        tensor: String,
        /// The number.
        value: f64,
        /// The type that was asked for.
        dtype: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },

    /// A checkpoint that cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),

    /// What a checkpoint keeps about the folder that it was imported from cannot be read.
    #[error("the checkpoint's record of its import cannot be read: {reason}; import the model again")]
    Origin {
        /// What does not fit.
        reason: String,
    },
}

impl HuggingFaceError {
    /// [`HuggingFaceError::Io`] of an action on a path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Shorthand for [`HuggingFaceError::Damaged`].
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    /// Shorthand for [`HuggingFaceError::Folder`].
    pub(crate) fn folder(path: &Path, rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Folder { path: path.to_owned(), rule: rule.into(), remedy: remedy.into() }
    }

    /// Shorthand for [`HuggingFaceError::Tensor`].
    pub(crate) fn tensor(path: &Path, tensor: &str, rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_owned(), tensor: tensor.to_owned(), rule: rule.into(), remedy: remedy.into() }
    }
}
