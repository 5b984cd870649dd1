//! Opening regular files, and nothing else.

use std::fs::{File, FileType, Metadata};
use std::path::Path;

use crate::FileError;

/// Opens a regular file for reading, and says how long it is. `expected` is for the message: "a model file".
///
/// # Errors
/// The system's; what is no regular file.
pub fn open(path: &Path, expected: &'static str) -> Result<(File, u64), FileError> {
    let check = |metadata: &Metadata| match kind(metadata.file_type()) {
        None => Ok(()),
        Some(found) => Err(FileError::NotRegular { path: path.to_owned(), found, expected }),
    };
    // Looked at before it is opened, since opening a pipe waits for its writer.
    check(&path.metadata().map_err(FileError::system(path))?)?;
    let file = File::open(path).map_err(FileError::system(path))?;
    // Another file may have got the name meanwhile.
    let metadata = file.metadata().map_err(FileError::system(path))?;
    check(&metadata)?;
    Ok((file, metadata.len()))
}

/// What something is that is no regular file.
fn kind(kind: FileType) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        _ => Some("a device"),
    }
}
