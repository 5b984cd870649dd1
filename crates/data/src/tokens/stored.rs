//! Files that are read piece by piece, at any place, by all ranks of a process.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use quadrille_files::{open, read_exact_at};

use super::Element;
use crate::DataError;

/// Bytes that are read at once: few calls of the system, and a buffer on the stack that is cleared in no time.
const PIECE: usize = 1 << 13;
/// Bytes of a [`Table`] that are read along with the number that was asked for.
const AHEAD: usize = 1 << 12;

/// An open file, as long as it was when it was opened.
///
/// It is read by calls, not mapped into memory: where another program makes it shorter, that is an error of the call, and
/// not a signal that ends the process.
#[derive(Debug)]
pub(crate) struct StoredFile {
    path: PathBuf,
    file: File,
    len: usize,
}

impl StoredFile {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (file, length) = open(path, "a file of tokens")?;
        let too_large = |_| DataError::io("read", path)(io::ErrorKind::FileTooLarge.into());
        let len = usize::try_from(length).map_err(too_large)?;
        Ok(Self { path: path.to_path_buf(), file, len })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Fills `out` with the bytes from `start` on, which lie within the file.
    ///
    /// # Errors
    /// [`DataError::SourceChanged`] if it has become shorter; [`DataError::Io`].
    pub fn read(&self, start: usize, out: &mut [u8]) -> Result<(), DataError> {
        read_exact_at(&self.file, start as u64, out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => DataError::io("read", &self.path)(error),
        })
    }

    /// The file has fewer bytes than before.
    fn changed(&self) -> DataError {
        let found = self.file.metadata().map_or(0, |metadata| metadata.len());
        DataError::SourceChanged { path: self.path.clone(), expected: self.len as u64, found }
    }

    /// The first bytes, `N` of them or as many as there are.
    pub fn start<const N: usize>(&self) -> Result<Vec<u8>, DataError> {
        let mut bytes = vec![0; N.min(self.len)];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Hands the bytes from `start` to `end` to `take`, a piece at a time.
    pub fn pieces(
        &self,
        start: usize,
        end: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut buffer = [0; PIECE];
        for at in (start..end).step_by(PIECE) {
            let bytes = &mut buffer[..PIECE.min(end - at)];
            self.read(at, bytes)?;
            take(bytes)?;
        }
        Ok(())
    }

    /// Positions of a token among those that lie from the byte `start` on.
    pub fn positions_of(&self, token: u32, element: Element, start: usize) -> Result<Vec<usize>, DataError> {
        let width = element.width();
        let bytes = token.to_le_bytes();
        let (bytes, beyond) = bytes.split_at(width.min(4));
        let mut positions = Vec::new();
        // A token that elements of this width cannot hold is none of them.
        if beyond.iter().any(|byte| *byte != 0) {
            return Ok(positions);
        }
        let mut before = 0;
        self.pieces(start, self.len, |piece| {
            let tokens = piece.chunks_exact(width).zip(before..);
            positions.extend(tokens.filter(|(found, _)| *found == bytes).map(|(_, at)| at));
            before += piece.len() / width;
            Ok(())
        })?;
        Ok(positions)
    }

    /// Copies the tokens that lie from the byte `start` on into `out`; `invalid` makes the error of a place in `out` and
    /// what it holds in place of a token.
    pub fn tokens(
        &self,
        element: Element,
        start: usize,
        out: &mut [u32],
        invalid: impl Fn(usize, i64) -> DataError,
    ) -> Result<(), DataError> {
        let end = start + out.len() * element.width();
        let mut done = 0;
        self.pieces(start, end, |bytes| {
            let count = bytes.len() / element.width();
            element.read(bytes, &mut out[done..done + count]).map_err(|(at, value)| invalid(done + at, value))?;
            done += count;
            Ok(())
        })
    }
}

/// Numbers that lie in a file one after the other. Each is read with those that follow it, so that reading all in their
/// order takes few calls.
pub(crate) struct Table<'a, const WIDTH: usize> {
    file: &'a StoredFile,
    /// Where the first number lies.
    start: usize,
    count: usize,
    /// The numbers that are held, and the first of them.
    held: Vec<u8>,
    first: usize,
}

impl<'a, const WIDTH: usize> Table<'a, WIDTH> {
    /// `count` numbers of `WIDTH` bytes from the byte `start` on.
    pub fn new(file: &'a StoredFile, start: usize, count: usize) -> Self {
        Self { file, start, count, held: Vec::new(), first: 0 }
    }

    /// The number at `at`, which is below their count.
    pub fn get(&mut self, at: usize) -> Result<u64, DataError> {
        if at < self.first || at - self.first >= self.held.len() / WIDTH {
            self.first = at;
            self.held.resize((self.count - at).min(AHEAD / WIDTH) * WIDTH, 0);
            let read = self.file.read(self.start + at * WIDTH, &mut self.held);
            read.inspect_err(|_| self.held.clear())?;
        }
        let start = (at - self.first) * WIDTH;
        Ok(number(&self.held[start..start + WIDTH]))
    }
}

/// The four bytes from `start` on as a number, lowest first.
pub(crate) fn u32_at(bytes: &[u8], start: usize) -> u32 {
    number(&bytes[start..start + 4]) as u32
}

/// The eight bytes from `start` on as a number, lowest first.
pub(crate) fn u64_at(bytes: &[u8], start: usize) -> u64 {
    number(&bytes[start..start + 8])
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
