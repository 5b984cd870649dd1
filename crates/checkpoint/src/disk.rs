//! Files that are written whole or not at all, and folders whose entries last.

use std::fs::{self, File, Permissions};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::CheckpointError;

/// What names of files that are still being written begin with.
pub(crate) const TEMPORARY: &str = ".writing-";

/// A file in `folder`, to be renamed; dropped, it leaves nothing.
pub(crate) fn temporary(folder: &Path) -> Result<NamedTempFile, CheckpointError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY);
    if let Some(permissions) = usual_permissions() {
        builder.permissions(permissions);
    }
    builder.tempfile_in(folder).map_err(CheckpointError::io("create a file in", folder))
}

/// Gives a file its name, once its bytes have reached the disk.
pub(crate) fn keep(file: NamedTempFile, path: &Path) -> Result<(), CheckpointError> {
    file.as_file().sync_all().map_err(CheckpointError::io("write", path))?;
    file.persist(path).map_err(|error| CheckpointError::io("write", path)(error.error))?;
    Ok(())
}

/// Waits until the names in a folder have reached the disk.
///
/// # Errors
/// The system's, but for file systems that keep names without being asked, and cannot be asked.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // Only Unix systems open folders as files.
    if cfg!(unix) {
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Creates a folder and those around it that are missing, and waits until their names have reached the disk. Several may
/// do so at once.
///
/// # Errors
/// The system's.
pub fn create_folders(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && folder.symlink_metadata().is_err())
        .collect();
    fs::create_dir_all(folder)?;
    // Whoever has made one of them has seen that it was missing.
    for made in missing.iter().rev() {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Removes a folder and what is in it; one that is not there is no failure.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CheckpointError::io("remove", folder)(error)),
        _ => Ok(()),
    }
}

/// Those of a file that a program creates, of which the system takes the user's mask; temporary files have fewer.
fn usual_permissions() -> Option<Permissions> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Some(Permissions::from_mode(0o666))
    }
    #[cfg(not(unix))]
    None
}
