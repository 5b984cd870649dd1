//! Files that appear under their names only when they are whole, and folders whose entries last.
//!
//! A file is written under a name that tells whose it is, `.quadrille-XXXXXX.partial`, beside the one that it will become,
//! and then renamed. A process that is killed may leave it: [`remove_left`] removes what has such a name.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// What stands before and behind the letters and digits that are drawn for a name.
const NAME: [&str; 2] = [".quadrille-", ".partial"];
/// How many are drawn.
const DRAWN: usize = 6;

/// A file in `folder`, to be [published](publish); dropped, it leaves nothing.
///
/// # Errors
/// The system's.
pub fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(NAME[0]).suffix(NAME[1]).rand_bytes(DRAWN);
    if let Some(permissions) = usual_permissions() {
        builder.permissions(permissions);
    }
    builder.tempfile_in(folder)
}

/// Gives a file its name, once its bytes have reached the disk. The name has when [`sync_folder`] returns.
///
/// # Errors
/// The system's.
pub fn publish(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Whether [`temporary`] gives such names.
pub fn is_temporary(name: &OsStr) -> bool {
    let drawn = name.to_str().and_then(|name| name.strip_prefix(NAME[0])?.strip_suffix(NAME[1]));
    drawn.is_some_and(|drawn| drawn.len() == DRAWN && drawn.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Removes what killed processes have left in `folder`, not below it. Nobody may be writing there.
///
/// # Errors
/// The system's.
pub fn remove_left(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_temporary(&entry.file_name()) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The folder that holds what `path` names.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
    missing.iter().rev().try_for_each(|made| sync_folder(folder_of(made)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (_, left) = temporary(folder.path()).unwrap().keep().unwrap();
        assert!(is_temporary(left.file_name().unwrap()), "{}", left.display());
        let foreign = [
            ".quadrille-cache",
            ".quadrille-ab12C.partial",
            ".quadrille-ab_12C.partial",
            ".quadrille-ab12C3.partial.txt",
            "x.quadrille-ab12C3.partial",
            ".tmpab12C3",
        ];
        foreign.iter().for_each(|name| fs::write(path(name), "").unwrap());
        fs::create_dir(path(".quadrille-Folder.partial")).unwrap();
        publish(temporary(folder.path()).unwrap(), &path("published")).unwrap();
        drop(temporary(folder.path()).unwrap());
        remove_left(folder.path()).unwrap();
        assert!(!left.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), foreign.len() + 2);
    }
}
