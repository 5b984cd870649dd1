//! Everything that can go wrong between memory and a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use quadrille_files::FileError;
use quadrille_spec::{Blame, SpecError};

use crate::Quantity;

/// What this crate's functions return when they fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
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

    /// A path that holds no checkpoint.
    #[error("{} is not a checkpoint: {reason}", path.display())]
    Foreign {
        /// The folder or file.
        path: PathBuf,
        /// What shows it.
        reason: String,
    },

    /// A checkpoint of another version of the format.
    #[error(
        "{} is of version {found} of the format, and this program reads version {}; use the program that wrote it",
        path.display(), crate::manifest::VERSION
    )]
    OtherVersion {
        /// The manifest.
        path: PathBuf,
        /// The version that it is of.
        found: u64,
    },

    /// A file whose content is not what was written.
    #[error("the checkpoint's file {} is damaged: {reason}; restore it from a copy, or use another checkpoint", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },

    /// A checkpoint that someone has removed since it was found.
    #[error("the checkpoint {} was removed meanwhile; use another one", .0.display())]
    Removed(
        /// The checkpoint.
        PathBuf,
    ),

    /// Numbers that are not what was written.
    #[error(
        "the checkpoint's file {} is damaged: the checksum of tile {tile} of tensor {tensor} does not fit its bytes; \
         restore it from a copy, or use another checkpoint", path.display()
    )]
    DamagedTile {
        /// The file.
        path: PathBuf,
        /// The tensor that the numbers are of.
        tensor: String,
        /// The tile's name in the file.
        tile: String,
    },

    /// Tiles that leave a part of a tensor out, or hold it twice.
    #[error("{}: tensor {tensor} ({quantity}) is not covered exactly once: {reason}", path.display())]
    Coverage {
        /// The manifest, or the folder that was to become a checkpoint.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What of it.
        quantity: Quantity,
        /// The gap or overlap.
        reason: String,
    },

    /// A manifest that describes no model or layout.
    #[error("{}: its {what} cannot be used", path.display())]
    Description {
        /// The manifest.
        path: PathBuf,
        /// "model" or "layout".
        what: &'static str,
        /// The rule that is broken.
        source: Box<SpecError>,
    },

    /// A checkpoint of a run that is damaged, with the one to fall back on.
    #[error("the checkpoint {} cannot be used; {}", path.display(), fallback(previous.as_deref()))]
    Unusable {
        /// The checkpoint.
        path: PathBuf,
        /// The newest one before it that opens.
        previous: Option<PathBuf>,
        /// What is wrong with it.
        source: Box<CheckpointError>,
    },

    /// A tensor or quantity that the checkpoint does not hold.
    #[error("the checkpoint {} has no {what}; {remedy}", path.display())]
    Absent {
        /// The checkpoint.
        path: PathBuf,
        /// What was asked for.
        what: String,
        /// What it has, or where to find it.
        remedy: String,
    },

    /// A checkpoint whose weights did not become those of another one.
    #[error(
        "the weights of the checkpoint {} cannot be those that {} had before: {reason}; take an earlier checkpoint of its run",
        path.display(), of.display()
    )]
    NotEarlier {
        /// The checkpoint.
        path: PathBuf,
        /// The one that is said to be later.
        of: PathBuf,
        /// What shows that it is not.
        reason: String,
    },

    /// A folder without a checkpoint, where there is to be one.
    #[error("{} has no checkpoints step-...; name their folder or a run's", .0.display())]
    Empty(
        /// The folder.
        PathBuf,
    ),

    /// Checkpoints of one folder that are of several models.
    #[error("{} is of another model than those before it", .0.display())]
    OtherModel(
        /// The first that is.
        PathBuf,
    ),

    /// A part of a tensor beyond its end.
    #[error(
        "row {row}, columns {col} to {end} of tensor {tensor} were asked for, and it has {rows} rows, {cols} columns"
    )]
    OutOfRange {
        /// The tensor.
        tensor: String,
        /// The row that was asked for.
        row: usize,
        /// The first column.
        col: usize,
        /// One past the last column.
        end: usize,
        /// Rows that there are.
        rows: usize,
        /// Columns that there are.
        cols: usize,
    },

    /// f64 numbers were to be read as f32.
    #[error(
        "the checkpoint {} holds f64 numbers, and f32 ones were asked for: reading them would round; run with `layout.dtype` f64, or \
         round them once: `checkpoint.merge` f32", .0.display()
    )]
    Rounding(
        /// The checkpoint.
        PathBuf,
    ),

    /// A number that f32 cannot hold.
    #[error("tensor {tensor} of the checkpoint {} has a number too large for f32 in row {row}; keep it as f64", path.display())]
    TooLarge {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The row.
        row: usize,
    },

    /// What was to be written is no checkpoint.
    #[error("cannot write the checkpoint {}: {reason}", path.display())]
    Unwritable {
        /// Where it was to be.
        path: PathBuf,
        /// The rule that is broken, and the remedy.
        reason: String,
    },
}

fn fallback(previous: Option<&Path>) -> String {
    let before =
        |path: &Path| format!("delete that folder to go on from the one before it, {}, which opens", path.display());
    previous.map_or("no earlier one opens".to_owned(), before)
}

impl CheckpointError {
    /// What is at fault where checkpoints that could be opened are worked on: a place that is taken and checkpoints that do not
    /// belong together are the question's fault, all else the files'.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unwritable { .. } | Self::NotEarlier { .. } | Self::Empty(_) | Self::OtherModel(_) => Blame::Input,
            _ => Blame::Work,
        }
    }

    /// Wraps a system error with what was tried on which path; made for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// Whether a copy would not have it: the files are at fault, not the question.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::DamagedTile { .. })
    }

    /// A damaged file.
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_path_buf(), reason: reason.into() }
    }

    /// What was to be written is no checkpoint.
    pub(crate) fn unwritable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unwritable { path: path.to_path_buf(), reason: reason.into() }
    }
}
