//! A file of tiles that is read: mapped when first touched, and held against the manifest then.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::Mmap;
use quadrille_files::FileError;

use crate::CheckpointError;
use crate::header::Header;
use crate::manifest::{self, ListedFile, Manifest};
use crate::writer::checksum;

/// Most files that a checkpoint holds open: systems allow a process a thousand or so.
const HELD_OPEN: usize = 256;

/// Maps a file into memory.
pub(crate) fn map(path: &Path) -> Result<Mmap, CheckpointError> {
    map_file(&open(path, None)?, path)
}

fn map_file(file: &File, path: &Path) -> Result<Mmap, CheckpointError> {
    // SAFETY: the mapping is read-only, and this program never changes a file of a checkpoint in place. Only another
    // program's writes could disturb it.
    unsafe { Mmap::map(file) }.map_err(CheckpointError::io("map", path))
}

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

/// A file of a checkpoint that is open.
#[derive(Debug)]
pub(crate) struct StoredFile {
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Where the first tile's bytes begin.
    pub data: usize,
    /// Held open, so that the bytes stay where someone removes the checkpoint; `None`: opened when it is first touched.
    file: Option<File>,
    map: OnceLock<Mmap>,
}

impl StoredFile {
    /// The file that the manifest lists, in `folder`: present, and as long as it should be.
    pub fn new(folder: &Path, listed: &ListedFile, manifest: &Manifest) -> Result<Self, CheckpointError> {
        let path = folder.join(manifest::file_name(listed.writer));
        let file = Some(open(&path, Some(listed.bytes))?).filter(|_| manifest.files.len() <= HELD_OPEN);
        let data = listed.data_bytes(manifest.about.dtype).and_then(|data| usize::try_from(listed.bytes - data).ok());
        let data = data.ok_or_else(|| CheckpointError::damaged(&path, "it is longer than memory can be"))?;
        Ok(Self { path, bytes: listed.bytes, data, file, map: OnceLock::new() })
    }

    /// All of its bytes. The first call checks the header; `expect` says what should be in it.
    pub fn bytes(&self, expect: impl FnOnce() -> Expected) -> Result<&[u8], CheckpointError> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let map = match &self.file {
            Some(file) => map_file(file, &self.path)?,
            None => map_file(&open(&self.path, Some(self.bytes))?, &self.path)?,
        };
        if self.bytes != map.len() as u64 {
            return Err(CheckpointError::damaged(&self.path, "its length has changed"));
        }
        expect().check(&map, self.data).map_err(|reason| CheckpointError::damaged(&self.path, reason))?;
        Ok(self.map.get_or_init(|| map))
    }
}

/// What the manifest says about a file's header.
pub(crate) struct Expected {
    pub checksum: u64,
    pub header: Header,
}

impl Expected {
    fn check(&self, bytes: &[u8], data: usize) -> Result<(), String> {
        let head = bytes.get(..data).ok_or("it ends within its header")?;
        if checksum(head) != self.checksum {
            return Err("the checksum of its header does not fit".to_owned());
        }
        // Where both are whole and disagree, someone has changed one of them.
        match Header::parse(bytes)? {
            (header, at) if at == data && header == self.header => Ok(()),
            _ => Err("its header does not say what the manifest says".to_owned()),
        }
    }
}
