//! Why a file cannot be read.

use std::io;
use std::path::{Path, PathBuf};

/// What this crate's functions return when they fail. `expected` says what the file was to be, e.g. "a model file".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A system call failed.
    #[error("cannot read {}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A folder, a pipe or a device.
    #[error("cannot read {}: it is {found}, not a regular file; give {expected}", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it was to be.
        expected: &'static str,
    },

    /// A file that is longer than what it was to be.
    #[error("cannot read {}: it has {bytes} bytes, and {expected} has at most {most}; give such a file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The longest that is read.
        most: u64,
        /// What it was to be.
        expected: &'static str,
    },

    /// A file with a line that is longer than what the line was to be.
    #[error(
        "cannot read {}: its line {line} has more than {most} bytes, and none of {expected} has; remove the line",
        path.display()
    )]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1 on.
        line: u64,
        /// The longest that is read.
        most: u64,
        /// What the lines were to be.
        expected: &'static str,
    },

    /// Bytes that are no text.
    #[error("cannot read {}: it is not UTF-8 text (byte {offset}), and {expected} is; give such a file", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first byte that is not.
        offset: usize,
        /// What it was to be.
        expected: &'static str,
    },
}

impl FileError {
    /// Wraps a system error on a path; made for `map_err`.
    pub(crate) fn system(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { path: path.to_owned(), source }
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
