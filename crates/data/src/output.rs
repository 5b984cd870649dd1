//! Files that appear under their names only when they are complete.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use quadrille_files::{folder_of, publish, sync_folder, temporary};
use tempfile::NamedTempFile;

use crate::{DataError, Vocabulary};

/// Bytes that are copied at a time.
const PART: usize = 1 << 16;

/// Whether a document has the token that marks its end, or in other formats its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It has, or gets it.
    Present,
    /// It has none, and gets none.
    Absent,
    /// Nor has this one: it is the rest of a document whose beginning is in the file before, as llm.c cuts them.
    Continued,
}

/// Takes documents, writes a file of tokens.
pub(crate) trait TokenWriter {
    /// Begins a document. The token that marks its beginning or end is not pushed: the writer puts it where its format has
    /// it.
    fn begin_document(&mut self, mark: Mark) -> Result<(), DataError>;

    /// Appends tokens to the present document.
    fn push(&mut self, tokens: &[u32]) -> Result<(), DataError>;

    /// Ends the present document.
    fn end_document(&mut self) -> Result<(), DataError>;

    /// Tokens so far, with those that mark documents.
    fn tokens(&self) -> u64;

    /// Documents that have ended.
    fn documents(&self) -> u64;

    /// Gives the complete files their names, which are returned.
    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, DataError>;
}

/// The token that ends the documents of a format that marks ends, of those that are marked.
pub(crate) fn end_token(vocabulary: Vocabulary, mark: Mark) -> Result<Option<u32>, DataError> {
    match (mark, vocabulary.end) {
        (Mark::Present, None) => Err(DataError::NoEnd { vocabulary: vocabulary.name.to_string() }),
        (Mark::Present, end) => Ok(end),
        _ => Ok(None),
    }
}

/// A file beside the one that it will become, hidden; dropped, it leaves nothing.
pub(crate) struct Draft {
    path: PathBuf,
    out: BufWriter<NamedTempFile>,
}

impl Draft {
    /// Begins what will be the file `path`.
    pub fn create(path: &Path) -> Result<Self, DataError> {
        let folder = folder_of(path);
        let temporary = temporary(folder).map_err(DataError::io("create a file in", folder))?;
        Ok(Self { path: path.to_path_buf(), out: BufWriter::with_capacity(PART, temporary) })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.out.write_all(bytes).map_err(DataError::io("write", &self.path))
    }

    /// Writes over what lies at `offset`; what follows is appended again.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DataError> {
        let out = &mut self.out;
        let written = out.seek(SeekFrom::Start(offset)).and_then(|_| out.write_all(bytes));
        written.and_then(|()| out.seek(SeekFrom::End(0))).map(drop).map_err(DataError::io("write", &self.path))
    }

    /// Waits until what was written has reached the disk.
    pub fn sync(&mut self) -> Result<(), DataError> {
        let synced = self.out.flush().and_then(|()| self.out.get_ref().as_file().sync_all());
        synced.map_err(DataError::io("write", &self.path))
    }

    /// Removes what the file would replace, safe from a crash of the machine.
    pub fn remove_old(&self) -> Result<(), DataError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(DataError::io("replace", &self.path))?,
        }
        sync_folder(folder_of(&self.path)).map_err(DataError::io("replace", &self.path))
    }

    /// Gives the file its name, both safe from a crash of the machine.
    pub fn publish(self) -> Result<PathBuf, DataError> {
        let Self { path, out } = self;
        let published = || -> io::Result<()> {
            let temporary = out.into_inner().map_err(|error| error.into_error())?;
            publish(temporary, &path)?;
            sync_folder(folder_of(&path))
        };
        published().map_err(DataError::io("write", &path))?;
        Ok(path)
    }
}

/// A file without a name, for what belongs behind something that is still growing.
pub(crate) struct Scratch {
    /// The file that it is for.
    path: PathBuf,
    out: BufWriter<File>,
}

impl Scratch {
    /// A file on the same disk as `path`.
    pub fn create(path: &Path) -> Result<Self, DataError> {
        let file =
            tempfile::tempfile_in(folder_of(path)).map_err(DataError::io("create a file in", folder_of(path)))?;
        Ok(Self { path: path.to_path_buf(), out: BufWriter::new(file) })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.out.write_all(bytes).map_err(DataError::io("write", &self.path))
    }

    /// Hands all bytes to `sink`, a part at a time; more can be appended afterwards.
    pub fn read_back(&mut self, sink: &mut dyn FnMut(&[u8]) -> Result<(), DataError>) -> Result<(), DataError> {
        let failed = || DataError::io("write", &self.path);
        self.out.rewind().map_err(failed())?;
        let mut reader = BufReader::new(self.out.get_ref());
        let mut part = Vec::with_capacity(PART);
        loop {
            part.clear();
            if reader.by_ref().take(PART as u64).read_to_end(&mut part).map_err(failed())? == 0 {
                break;
            }
            sink(&part)?;
        }
        self.out.seek(SeekFrom::End(0)).map(drop).map_err(failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_appears_when_it_is_complete_and_leaves_nothing_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let begun = || {
            let mut draft = Draft::create(&path).unwrap();
            draft.write(b"....tail").unwrap();
            draft.write_at(0, b"head").unwrap();
            draft.write(b"!").unwrap();
            draft
        };
        drop(begun());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        begun().publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"headtail!");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn scratch_gives_back_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::create(&folder.path().join("x")).unwrap();
        let bytes: Vec<u8> = (0..3 * PART as u32).map(|i| i as u8).collect();
        let mut expected = Vec::new();
        for part in bytes.chunks(100_000) {
            scratch.write(part).unwrap();
            expected.extend_from_slice(part);
            let mut read = Vec::new();
            scratch
                .read_back(&mut |bytes| {
                    read.extend_from_slice(bytes);
                    Ok(())
                })
                .unwrap();
            assert!(read == expected);
        }
    }
}
