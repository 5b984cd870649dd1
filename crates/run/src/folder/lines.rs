//! Files of lines, or of other records, that are appended while a run goes on, whole ones only.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file to which lines are added.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    file: File,
    /// Whether records that cannot be written wait for the next.
    patient: bool,
    waiting: Vec<u8>,
}

impl Lines {
    fn new(path: &Path, file: File) -> Self {
        Self { path: path.to_owned(), file, patient: false, waiting: Vec::new() }
    }

    /// From now on what cannot be written is no error: it is kept, and tried again with the next record.
    pub fn wait_for_space(&mut self) {
        self.patient = true;
    }

    /// Tries again to write what is waiting.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.patient = false;
        self.append_bytes(&[])
    }

    /// An empty file, in place of what is there.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::new(path, File::create(path)?))
    }

    /// A file that has lines already.
    ///
    /// # Errors
    /// The system's.
    pub fn continued(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self::new(path, file))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line in one piece: a process that is killed leaves no half of one. Nor does a disk that is full in the
    /// middle of it, where what is there can be cut off again.
    ///
    /// # Errors
    /// The system's.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        self.append_bytes(format!("{line}\n").as_bytes())
    }

    /// The same for a record that is no line.
    ///
    /// # Errors
    /// The system's.
    pub fn append_bytes(&mut self, record: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(record);
        let whole = self.file.stream_position();
        match self.file.write_all(&self.waiting) {
            Ok(()) => self.waiting.clear(),
            Err(error) => {
                // A pipe has no positions. The first error is the one to tell.
                let _ = whole.and_then(|whole| {
                    self.file.set_len(whole)?;
                    self.file.seek(SeekFrom::Start(whole))
                });
                if !self.patient {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
