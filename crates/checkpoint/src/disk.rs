//! The system's errors as those of checkpoints.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::CheckpointError;

/// A file in `folder`, to be renamed; dropped, it leaves nothing.
pub(crate) fn temporary(folder: &Path) -> Result<NamedTempFile, CheckpointError> {
    quadrille_files::temporary(folder).map_err(CheckpointError::io("create a file in", folder))
}

/// Gives a file its name, once its bytes have reached the disk.
pub(crate) fn keep(file: NamedTempFile, path: &Path) -> Result<(), CheckpointError> {
    quadrille_files::publish(file, path).map_err(CheckpointError::io("write", path))
}

/// Removes a folder and what is in it; one that is not there is no failure.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CheckpointError::io("remove", folder)(error)),
        _ => Ok(()),
    }
}
