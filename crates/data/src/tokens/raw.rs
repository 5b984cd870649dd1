//! Token ids without a header, little-endian, one after the other: the `train.bin` of nanoGPT's data/*/prepare.py.
//!
//! The files do not say whose tokens they hold. Where the user does, documents end with the tokenizer's end token; else a file is
//! one document.

use std::path::Path;
use std::sync::OnceLock;

use super::{Element, StoredFile, Tokens, check_range, copy_starts};
use crate::{DataError, Vocabulary};

const FORMAT: &str = "file of token ids without a header";
const REMEDY: &str = "name the type of its ids with `data.format` raw-u16 or raw-u32, or write it again";

/// A file of token ids and nothing else.
#[derive(Debug)]
pub struct RawFile {
    file: StoredFile,
    element: Element,
    /// Vocabulary of the tokens, if the user has named it.
    vocabulary: Option<Vocabulary>,
    /// Positions of the documents' first tokens: found by reading the file, when they are first asked for.
    starts: OnceLock<Vec<usize>>,
}

impl RawFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`DataError::Invalid`] for a length that is no multiple of a token's; [`DataError::Io`].
    pub(crate) fn open(path: &Path, element: Element, vocabulary: Option<Vocabulary>) -> Result<Self, DataError> {
        let file = StoredFile::open(path)?;
        let width = element.width();
        let raw = Self { file, element, vocabulary, starts: OnceLock::new() };
        match raw.file.len() % width {
            0 => Ok(raw),
            rest => {
                let rule = format!("{rest} of {} bytes are left, and an id has {width}", raw.file.len());
                Err(raw.invalid(raw.file.len() - rest, rule))
            }
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.file.len() / self.element.width()
    }

    /// True if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions of the first tokens of the documents.
    fn starts(&self) -> Result<&[usize], DataError> {
        if let Some(starts) = self.starts.get() {
            return Ok(starts);
        }
        let mut starts = if self.is_empty() { Vec::new() } else { vec![0] };
        if let Some(end) = self.vocabulary.and_then(|vocabulary| vocabulary.end) {
            let ends = self.file.positions_of(end, self.element, 0)?;
            starts.extend(ends.into_iter().map(|end| end + 1).filter(|start| *start < self.len()));
        }
        Ok(self.starts.get_or_init(|| starts))
    }

    fn invalid(&self, offset: usize, rule: String) -> DataError {
        let path = self.path().to_path_buf();
        let offset = offset as u64;
        DataError::Invalid { path, format: FORMAT, offset, rule, remedy: REMEDY }
    }
}

impl Tokens for RawFile {
    fn len(&self) -> usize {
        self.len()
    }

    fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        check_range(start, out.len(), self.len())?;
        let width = self.element.width();
        self.file.tokens(self.element, start * width, out, |at, token| {
            self.invalid((start + at) * width, format!("{token} is no token"))
        })
    }

    fn documents(&self) -> Result<usize, DataError> {
        Ok(self.starts()?.len())
    }

    fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError> {
        copy_starts(self.starts()?, self.len(), first, starts);
        Ok(())
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        self.vocabulary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VocabularyName;

    /// An end token of 65,536 or more is no id of 2 bytes, and not the one with the same lower bytes either.
    #[test]
    fn an_end_token_that_ids_cannot_hold_ends_no_document() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.bin");
        for (element, end, starts) in [
            (Element::U16, 7, &[0, 2, 3][..]),
            (Element::U16, 0x1_0007, &[0]),
            (Element::U32, 7, &[0, 2, 3]),
            (Element::U32, 0x1_0007, &[0, 5]),
        ] {
            let mut bytes = Vec::new();
            let last = if element == Element::U32 { [0x1_0007, 9] } else { [8, 9] };
            element.write(&[1, 7, 7, 2], &mut bytes);
            element.write(&last, &mut bytes);
            std::fs::write(&path, bytes).unwrap();
            let vocabulary = Vocabulary { name: VocabularyName::Gpt2, size: 1 << 17, end: Some(end) };
            let file = RawFile::open(&path, element, Some(vocabulary)).unwrap();
            assert_eq!(file.starts().unwrap(), starts, "{element:?} {end}");
        }
    }
}
