//! Files of lines, or of other records, that are appended while a run goes on, whole ones only.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file to which lines are added.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// An empty file, in place of what is there.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: File::create(path)? })
    }

    /// A file that has lines already.
    pub fn continued(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line in one piece: a process that is killed leaves no half of one. Nor does a disk that is full in the
    /// middle of it, where what is there can be cut off again.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        self.append_bytes(format!("{line}\n").as_bytes())
    }

    /// The same for a record that is no line.
    pub fn append_bytes(&mut self, record: &[u8]) -> io::Result<()> {
        let whole = self.file.stream_position();
        self.file.write_all(record).inspect_err(|_| {
            // A pipe has no positions. The first error is the one to tell.
            let _ = whole.map(|whole| self.file.set_len(whole));
        })
    }
}
