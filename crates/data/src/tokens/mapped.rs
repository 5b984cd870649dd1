//! Files mapped into memory: pages are read when first touched, and shared by all ranks of a node.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::DataError;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) struct Mapped {
    path: PathBuf,
    map: Mmap,
}

impl Mapped {
    /// Maps the file at `path`.
    ///
    /// A file that another program makes shorter while it is mapped ends this one, when what is gone is read.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (file, _) = quadrille_files::open(path, "a file of tokens")?;
        // SAFETY: the mapping is read-only and this program never changes a token file in place: it writes another
        // file and renames it, which leaves mapped pages as they are. Only another program's writes could disturb it.
        let map = unsafe { Mmap::map(&file) }.map_err(DataError::io("map", path))?;
        Ok(Self { path: path.to_path_buf(), map })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// The four bytes from `start` on as a number, lowest first.
pub(crate) fn u32_at(bytes: &[u8], start: usize) -> u32 {
    bytes[start..start + 4].iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// The eight bytes from `start` on as a number, lowest first.
pub(crate) fn u64_at(bytes: &[u8], start: usize) -> u64 {
    u64::from(u32_at(bytes, start)) | u64::from(u32_at(bytes, start + 4)) << 32
}
