//! Reads Megatron-LM's indexed data sets.

use std::path::Path;

use super::{CODES, FORMAT, HEADER_BYTES, MAGIC, VERSION, pair};
use crate::tokens::{Element, StoredFile, Table, Tokens, check_range, u64_at};
use crate::{DataError, Vocabulary};

const REMEDY: &str = "write it again with Megatron-LM's tools/preprocess_data.py, or with `quadrille data prepare`";

/// An indexed data set. Its files do not say whose tokens they hold.
#[derive(Debug)]
pub struct MegatronFile {
    data: StoredFile,
    index: StoredFile,
    element: Element,
    sequences: usize,
    documents: usize,
    /// Whose tokens it holds, if the user has said it.
    vocabulary: Option<Vocabulary>,
}

impl MegatronFile {
    /// Opens the pair that `path` names, `PREFIX.bin`, `PREFIX.idx` or `PREFIX`, and checks the whole index: sequences lie
    /// in the `.bin` one after the other, and documents are runs of them. Tokens are checked when they are read.
    ///
    /// # Errors
    /// [`DataError::Invalid`] with the rule that is broken and where; [`DataError::Io`].
    pub fn open(path: &Path, vocabulary: Option<Vocabulary>) -> Result<Self, DataError> {
        let (data, index) = pair(path);
        let index = StoredFile::open(&index)?;
        let (element, sequences, documents) = header(&index)?;
        let data = StoredFile::open(&data)?;
        let opened = Self { data, index, element, sequences, documents, vocabulary };
        opened.check_sequences()?;
        opened.check_documents()?;
        Ok(opened)
    }

    /// Where the tokens are; the index lies beside them.
    pub fn path(&self) -> &Path {
        self.data.path()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.data.len() / self.element.width()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the offsets of the sequences begin in the index.
    fn pointers_start(&self) -> usize {
        HEADER_BYTES + 4 * self.sequences
    }

    fn pointers(&self) -> Table<'_, 8> {
        Table::new(&self.index, self.pointers_start(), self.sequences)
    }

    /// Where the first sequences of the documents begin in the index.
    fn firsts_start(&self) -> usize {
        HEADER_BYTES + 12 * self.sequences
    }

    fn firsts(&self) -> Table<'_, 8> {
        Table::new(&self.index, self.firsts_start(), self.documents + 1)
    }

    /// Sequences have the lengths that the index says, without gaps, and fill the `.bin`.
    fn check_sequences(&self) -> Result<(), DataError> {
        let width = self.element.width() as u64;
        let mut expected = 0_u64;
        let mut lengths = Table::<4>::new(&self.index, HEADER_BYTES, self.sequences);
        let mut pointers = self.pointers();
        for sequence in 0..self.sequences {
            let length_at = HEADER_BYTES + 4 * sequence;
            let pointer_at = self.pointers_start() + 8 * sequence;
            let length = lengths.get(sequence)?;
            let pointer = pointers.get(sequence)?;
            if length > i32::MAX as u64 {
                return Err(invalid(&self.index, length_at, format!("sequence {sequence} has a negative length")));
            }
            if pointer != expected {
                let rule = format!(
                    "sequence {sequence} begins at byte {pointer} of the .bin, where those before it take {expected}"
                );
                return Err(invalid(&self.index, pointer_at, rule));
            }
            expected += length * width;
        }
        if expected != self.data.len() as u64 {
            let present = self.data.len();
            let path = self.data.path().display();
            let rule = format!("its sequences take {expected} bytes, and {path} has {present}");
            return Err(invalid(&self.index, HEADER_BYTES, rule));
        }
        Ok(())
    }

    /// Documents are consecutive runs of all sequences.
    fn check_documents(&self) -> Result<(), DataError> {
        let mut before = 0;
        let mut firsts = self.firsts();
        for document in 0..=self.documents {
            let at = self.firsts_start() + 8 * document;
            let first = firsts.get(document)?;
            let wrong = match document {
                0 => first != 0,
                _ => first < before,
            };
            if wrong || first > self.sequences as u64 {
                let rule = format!("document {document} begins with sequence {first}, of {}", self.sequences);
                return Err(invalid(&self.index, at, rule));
            }
            before = first;
        }
        if before != self.sequences as u64 {
            let at = self.firsts_start() + 8 * self.documents;
            let rule = format!("its documents have {before} of {} sequences", self.sequences);
            return Err(invalid(&self.index, at, rule));
        }
        Ok(())
    }
}

/// Type, sequences and documents of an index whose length they explain.
fn header(index: &StoredFile) -> Result<(Element, usize, usize), DataError> {
    let start = index.start::<HEADER_BYTES>()?;
    if !start.starts_with(MAGIC) {
        return Err(invalid(index, 0, "it must begin with MMIDIDX and two zero bytes".to_owned()));
    }
    if index.len() < HEADER_BYTES {
        return Err(invalid(index, index.len(), format!("its header ends, and has {HEADER_BYTES} bytes")));
    }
    let version = u64_at(&start, 9);
    if version != VERSION {
        return Err(invalid(index, 9, format!("it has version {version}, and version {VERSION} is read")));
    }
    let code = start[17];
    let Some((_, element)) = CODES.into_iter().find(|(known, _)| *known == code) else {
        let kind = if matches!(code, 6 | 7) { "a floating-point type" } else { "unknown" };
        let rule = format!("its tokens have type {code}, {kind}; tokens are integers: 1 to 5, or 8");
        return Err(invalid(index, 17, rule));
    };
    let sequences = u64_at(&start, 18);
    let entries = u64_at(&start, 26);
    let expected = HEADER_BYTES as u128 + 12 * u128::from(sequences) + 8 * u128::from(entries);
    if expected != index.len() as u128 {
        let modes = expected + u128::from(sequences) == index.len() as u128;
        let why = if modes { ": it seems to hold several modalities, of which only text is read" } else { "" };
        let rule = format!(
            "its {sequences} sequences and {entries} ends of documents make {expected} bytes, and it has {}{why}",
            index.len()
        );
        return Err(invalid(index, 18, rule));
    }
    if entries == 0 {
        return Err(invalid(index, 26, "its table of documents is empty, and begins with 0 at least".to_owned()));
    }
    Ok((element, sequences as usize, entries as usize - 1)) // fit: the file is longer
}

fn invalid(file: &StoredFile, offset: usize, rule: String) -> DataError {
    DataError::Invalid { path: file.path().to_path_buf(), format: FORMAT, offset: offset as u64, rule, remedy: REMEDY }
}

impl Tokens for MegatronFile {
    fn len(&self) -> usize {
        self.len()
    }

    fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        check_range(start, out.len(), self.len())?;
        let width = self.element.width();
        self.data.tokens(self.element, start * width, out, |at, token| {
            let rule = format!("{token} is no token: tokens are at least 0 and below 4294967295");
            let offset = ((start + at) * width) as u64;
            let format = "Megatron-LM data";
            DataError::Invalid { path: self.path().to_path_buf(), format, offset, rule, remedy: REMEDY }
        })
    }

    fn documents(&self) -> Result<usize, DataError> {
        Ok(self.documents)
    }

    fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError> {
        let mut firsts = self.firsts();
        let mut pointers = self.pointers();
        for (document, start) in (first..).zip(starts) {
            let sequence = firsts.get(document.min(self.documents))? as usize;
            *start = if sequence < self.sequences {
                pointers.get(sequence)? as usize / self.element.width()
            } else {
                self.len()
            };
        }
        Ok(())
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        self.vocabulary
    }

    fn verify(&self) -> Result<(), DataError> {
        let mut tokens = vec![0; 1 << 16];
        for start in (0..self.len()).step_by(tokens.len()) {
            let count = tokens.len().min(self.len() - start);
            self.window(start, &mut tokens[..count])?;
        }
        Ok(())
    }
}
