//! Files of any name that are replaced whole or not at all: written beside, then renamed, so that a reader never sees half
//! of one.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::{folder_of, publish, sync_folder, temporary};

/// Makes sure that a file can be written, before the work that fills it; leaves nothing and changes nothing.
///
/// # Errors
/// The system's.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match existing(path)? {
        // Opening a pipe waits for its reader, and closing it ends what the reader sees.
        Some(metadata) if !metadata.is_file() && !metadata.is_dir() => return Ok(()),
        Some(_) => drop(OpenOptions::new().write(true).open(path)?),
        None => {}
    }
    beside(path).map(drop)
}

/// How to mend that a file cannot be written, as the end of a message: `; make the folder x first, or name a file elsewhere`; nothing
/// where nobody knows.
pub fn remedy(path: &Path, error: &io::Error) -> String {
    let folder = folder_of(path);
    match error.kind() {
        ErrorKind::NotFound if !folder.exists() => {
            format!("; make the folder {} first, or name a file elsewhere", folder.display())
        }
        ErrorKind::IsADirectory => "; name a file in it".to_owned(),
        ErrorKind::NotADirectory | ErrorKind::PermissionDenied => "; name a file elsewhere".to_owned(),
        _ => String::new(),
    }
}

/// Replaces what a file holds. Devices and pipes are written to.
///
/// # Errors
/// The system's.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let old = existing(path)?;
    if old.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        return OpenOptions::new().write(true).open(path)?.write_all(content);
    }
    let mut temporary = beside(path)?;
    temporary.write_all(content)?;
    if let Some(metadata) = old {
        temporary.as_file().set_permissions(metadata.permissions())?;
    }
    let target = target(path);
    publish(temporary, &target)?;
    // The name, too, survives a crash of the machine.
    sync_folder(folder_of(&target))
}

/// A file in the folder of `path`, to be [published](publish) as it; dropped, it leaves nothing.
///
/// # Errors
/// The system's.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let path = target(path);
    let folder = folder_of(&path);
    // The folder is looked at first, for the system's own words about it.
    folder.metadata()?;
    temporary(folder)
}

/// What the system says of a file that cannot be written, without the name of the temporary one that was to become it.
pub fn reason(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.kind().to_string(), |_| error.to_string())
}

/// What is there; `None` where nothing is yet.
fn existing(path: &Path) -> io::Result<Option<Metadata>> {
    match path.metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file itself where `path` is a link to one: a link stays a link.
fn target(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        check_writable(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        replace(&path, b"first, and longer").unwrap();
        check_writable(&path).unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_permissions_stay_what_they_were() {
        use std::fs::Permissions;
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [file, link, plain] = ["file", "link", "plain"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert!(link.is_symlink());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("new", 0o640));
        // As any other program would create it.
        fs::write(&plain, "").unwrap();
        let made = folder.path().join("made");
        replace(&made, b"").unwrap();
        assert_eq!(mode(&made), mode(&plain));
        replace(Path::new("/dev/null"), b"nothing").unwrap();
    }
}
