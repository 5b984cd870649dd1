//! Files of lines, read one after the other.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::{FileError, open};

/// The lines of a file of any length, of which one at a time is in memory.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    expected: &'static str,
    most: u64,
    number: u64,
    line: Vec<u8>,
}

/// A line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1 on.
    pub number: u64,
    /// Its bytes, without the end of the line.
    pub bytes: &'a [u8],
    /// Whether it ends; the last one may be cut off.
    pub is_whole: bool,
}

impl Lines {
    /// Opens a file whose lines are called `expected` ("the steps of a run") and have at most so many bytes.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn open(path: &Path, expected: &'static str, most: u64) -> Result<Self, FileError> {
        let reader = BufReader::new(open(path, expected)?.0);
        Ok(Self { path: path.to_owned(), reader, expected, most, number: 0, line: Vec::new() })
    }

    /// The next line.
    ///
    /// # Errors
    /// The system's; a line that is too long.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, FileError> {
        self.line.clear();
        let mut limited = self.reader.by_ref().take(self.most + 1);
        if limited.read_until(b'\n', &mut self.line).map_err(FileError::system(&self.path))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let is_whole = self.line.last() == Some(&b'\n');
        let bytes = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        if bytes.len() as u64 > self.most {
            let path = self.path.clone();
            let line = self.number;
            let most = self.most;
            let expected = self.expected;
            return Err(FileError::LongLine { path, line, most, expected });
        }
        Ok(Some(Line { number: self.number, bytes, is_whole }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_are_read_up_to_their_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        fs::write(&path, "four\n\ncut").unwrap();
        let mut lines = Lines::open(&path, "the lines", 4).unwrap();
        for (number, bytes, is_whole) in [(1, "four", true), (2, "", true), (3, "cut", false)] {
            assert_eq!(lines.next_line().unwrap(), Some(Line { number, bytes: bytes.as_bytes(), is_whole }));
        }
        assert_eq!(lines.next_line().unwrap(), None);
        fs::write(&path, "a\nfives\nb\n").unwrap();
        let mut lines = Lines::open(&path, "the lines", 4).unwrap();
        lines.next_line().unwrap();
        let message = lines.next_line().unwrap_err().to_string();
        assert!(message.contains("its line 2 has more than 4 bytes, and none of the lines has"), "{message}");
    }
}
