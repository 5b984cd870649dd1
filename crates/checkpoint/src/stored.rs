//! A file of tiles that is read: held against the manifest when it is first touched.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use quadrille_files::{FileError, read_exact_at};

use crate::CheckpointError;
use crate::header::{self, Header};
use crate::manifest::{self, ListedFile, Manifest};
use crate::writer::checksum;

/// Most files that a checkpoint opens before they are touched.
const OPENED_EARLY: usize = 256;

/// Opens a file; `bytes` is the length that it should have: that is noticed at once, without touching its content.
fn open(path: &Path, bytes: Option<u64>) -> Result<File, CheckpointError> {
    let (file, length) =
        quadrille_files::open(path, "a file of a checkpoint").map_err(|error| unopened(path, error))?;
    match bytes {
        Some(bytes) if bytes != length => {
            Err(CheckpointError::damaged(path, format!("it has {length} bytes, and {bytes} were written")))
        }
        _ => Ok(file),
    }
}

/// A file that is missing or something else: damage, unless the whole folder is gone.
fn unopened(path: &Path, error: FileError) -> CheckpointError {
    match (&error, path.parent()) {
        (missing, Some(folder)) if missing.is_missing() && folder.symlink_metadata().is_err() => {
            CheckpointError::Removed(folder.to_path_buf())
        }
        (missing, _) if missing.is_missing() => CheckpointError::damaged(path, "it is missing"),
        (FileError::NotRegular { found, .. }, _) => {
            CheckpointError::damaged(path, format!("it is {found}, not a regular file"))
        }
        _ => error.into(),
    }
}

/// A file of a checkpoint. It is read by calls, not mapped into memory: where another program makes it shorter, that is an
/// error of the call, and not a signal that ends the process.
#[derive(Debug)]
pub(crate) struct StoredFile {
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Where the first tile's bytes begin.
    pub data: usize,
    /// Once open it is held so, and the bytes stay where someone removes the checkpoint.
    file: OnceLock<File>,
    /// Set once its header was found to be what the manifest says.
    sound: OnceLock<()>,
}

impl StoredFile {
    /// The file that the manifest lists, in `folder`: present, and as long as it should be.
    pub fn new(folder: &Path, listed: &ListedFile, manifest: &Manifest) -> Result<Self, CheckpointError> {
        let path = folder.join(manifest::file_name(listed.writer));
        let file = open(&path, Some(listed.bytes))?;
        let file = if manifest.files.len() <= OPENED_EARLY { OnceLock::from(file) } else { OnceLock::new() };
        let head = listed.data_bytes(manifest.about.dtype).map(|data| listed.bytes - data);
        let Some(head) = head.filter(|head| *head <= header::LONGEST && usize::try_from(listed.bytes).is_ok()) else {
            return Err(CheckpointError::damaged(&path, "its length is not that of its tiles and a header"));
        };
        let data = head as usize;
        Ok(Self { path, bytes: listed.bytes, data, file, sound: OnceLock::new() })
    }

    /// Fills `out` with the bytes from `start` on. The first call checks the header; `expect` says what should be in it.
    pub fn read(&self, start: usize, out: &mut [u8], expect: impl FnOnce() -> Expected) -> Result<(), CheckpointError> {
        let file = match self.file.get() {
            Some(file) => file,
            // Where several threads have opened it, one of them is held, and they are the same.
            None => {
                let file = open(&self.path, Some(self.bytes))?;
                self.file.get_or_init(|| file)
            }
        };
        if self.sound.get().is_none() {
            let mut head = vec![0; self.data];
            read_at(file, &self.path, 0, &mut head)?;
            let checked = expect().check(&head, self.bytes);
            checked.map_err(|reason| CheckpointError::damaged(&self.path, reason))?;
            self.sound.get_or_init(|| ());
        }
        read_at(file, &self.path, start, out)
    }
}

/// Reads bytes that lie within the file's length.
fn read_at(file: &File, path: &Path, start: usize, out: &mut [u8]) -> Result<(), CheckpointError> {
    read_exact_at(file, start as u64, out).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let end = start + out.len();
            CheckpointError::damaged(path, format!("it has become shorter: its bytes {start} to {end} are gone"))
        }
        _ => CheckpointError::io("read", path)(error),
    })
}

/// The header of a file that was just written, its own bytes, and the length of the file.
pub(crate) fn read_header(path: &Path) -> Result<(Header, Vec<u8>, u64), CheckpointError> {
    let file = open(path, None)?;
    let length = file.metadata().map_err(CheckpointError::io("read", path))?.len();
    let damaged = |reason| CheckpointError::damaged(path, reason);
    let mut head = vec![0; length.min(header::LENGTH_BYTES as u64) as usize];
    read_at(&file, path, 0, &mut head)?;
    head.resize(header::bytes_before_tiles(&head, length).map_err(damaged)?, 0);
    read_at(&file, path, 0, &mut head)?;
    let (header, _) = Header::parse(&head, length).map_err(damaged)?;
    Ok((header, head, length))
}

/// What the manifest says about a file's header.
pub(crate) struct Expected {
    pub checksum: u64,
    pub header: Header,
}

impl Expected {
    /// Checks the bytes before the first tile's, of a file of this length.
    fn check(&self, head: &[u8], length: u64) -> Result<(), String> {
        if checksum(head) != self.checksum {
            return Err("the checksum of its header does not fit".to_owned());
        }
        // Where both are whole and disagree, someone has changed one of them.
        match Header::parse(head, length)? {
            (header, at) if at == head.len() && header == self.header => Ok(()),
            _ => Err("its header does not say what the manifest says".to_owned()),
        }
    }
}
