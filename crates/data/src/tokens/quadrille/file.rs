//! Token files: read where tokens are wanted, and checked block by block, when first read.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use super::header::{BLOCK_BYTES, HEADER_BYTES, Header};
use crate::tokens::{StoredFile, Table, Tokens, check_range};
use crate::{DataError, Vocabulary};

/// A corpus of tokens in a file. No token is given out before the checksum of its block was found to be right.
pub struct TokenFile {
    file: StoredFile,
    header: Header,
    /// For every block of the body whether its checksum was checked.
    checked: Vec<AtomicBool>,
}

impl TokenFile {
    /// Opens the token file at `path` and checks its header, its length, its checksums' checksum and the index of its
    /// documents. Tokens are checked when they are read.
    ///
    /// # Errors
    /// [`DataError::Foreign`], [`DataError::WrongVersion`], [`DataError::Damaged`] for what is not a whole token file
    /// of this version; [`DataError::SourceChanged`]; [`DataError::Io`].
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = StoredFile::open(path)?;
        let header = Header::from_file(&file)?;
        let blocks = (header.body_bytes() as usize).div_ceil(BLOCK_BYTES);
        let checked = (0..blocks).map(|_| AtomicBool::new(false)).collect();
        let opened = Self { file, header, checked };
        opened.check_checksums()?;
        opened.check(opened.index_start(), opened.body_bytes())?;
        opened.check_index()?;
        Ok(opened)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Whose tokens they are.
    pub fn vocabulary(&self) -> Vocabulary {
        self.header.vocabulary
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.header.tokens as usize // fits: the file holds as many
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hash of the tokens and documents: of the header, which holds the checksum of all checksums, without the key of the
    /// sources.
    pub fn content(&self) -> u128 {
        xxh3_128(&Header { corpus_key: 0, ..self.header }.to_bytes())
    }

    /// The hash of the sources, see [`crate::prepare()`].
    pub(crate) fn corpus_key(&self) -> u128 {
        self.header.corpus_key
    }

    fn body_bytes(&self) -> usize {
        self.header.body_bytes() as usize // fits: the file is longer
    }

    /// The checksums of all blocks.
    fn checksums(&self) -> Table<'_, 8> {
        Table::new(&self.file, HEADER_BYTES + self.body_bytes(), self.checked.len())
    }

    fn check_checksums(&self) -> Result<(), DataError> {
        let mut hash = Xxh3::new();
        self.file.pieces(HEADER_BYTES + self.body_bytes(), self.file.len(), |bytes| {
            hash.update(bytes);
            Ok(())
        })?;
        if hash.digest() == self.header.checksums_hash {
            Ok(())
        } else {
            Err(self.damaged("the checksum of its checksums does not fit"))
        }
    }

    /// Checks the blocks that hold the bytes from `start` to `end` of the body, each once in the life of this value.
    fn check(&self, start: usize, end: usize) -> Result<(), DataError> {
        let blocks = start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let unchecked = |block: &usize| !self.checked[*block].load(Ordering::Relaxed);
        let mut bytes = Vec::new();
        let mut checksums = self.checksums();
        for block in blocks.filter(unchecked) {
            let begin = block * BLOCK_BYTES;
            bytes.resize(BLOCK_BYTES.min(self.body_bytes() - begin), 0);
            self.file.read(HEADER_BYTES + begin, &mut bytes)?;
            if xxh3_64(&bytes) != checksums.get(block)? {
                let from = HEADER_BYTES + begin;
                let to = HEADER_BYTES + begin + bytes.len();
                return Err(self.damaged(&format!("the checksum of its bytes {from} to {to} does not fit")));
            }
            self.checked[block].store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Positions of the documents' first tokens.
    fn index(&self) -> Table<'_, 8> {
        Table::new(&self.file, HEADER_BYTES + self.index_start(), self.header.documents as usize)
    }

    /// Documents begin at 0, in ascending order, and within the tokens or, if they have none, at their end.
    fn check_index(&self) -> Result<(), DataError> {
        let mut before = 0;
        let mut index = self.index();
        for document in 0..self.header.documents {
            let start = index.get(document as usize)?;
            if start < before || start > self.header.tokens || (document == 0 && start != 0) {
                return Err(self.damaged(&format!("its document {document} begins at token {start}")));
            }
            before = start;
        }
        if self.header.documents == 0 && self.header.tokens > 0 {
            return Err(self.damaged("its tokens belong to no document"));
        }
        Ok(())
    }

    fn index_start(&self) -> usize {
        self.header.index_start() as usize // fits: the file is longer
    }

    fn damaged(&self, reason: &str) -> DataError {
        DataError::Damaged { path: self.path().to_path_buf(), reason: reason.to_owned() }
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").field("path", &self.path()).field("header", &self.header).finish()
    }
}

impl Tokens for TokenFile {
    fn len(&self) -> usize {
        self.len()
    }

    fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        check_range(start, out.len(), self.len())?;
        let element = self.header.element();
        let from = start * element.width();
        let to = (start + out.len()) * element.width();
        self.check(from, to)?;
        let invalid = |at, token| self.damaged(&format!("{token} at position {} is no token", start + at));
        self.file.tokens(element, HEADER_BYTES + from, out, invalid)
    }

    fn documents(&self) -> Result<usize, DataError> {
        Ok(self.header.documents as usize) // fits: the file holds as many
    }

    fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError> {
        let documents = self.header.documents as usize;
        let mut index = self.index();
        for (document, start) in (first..).zip(starts) {
            *start = if document < documents { index.get(document)? as usize } else { self.len() };
        }
        Ok(())
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        Some(self.vocabulary())
    }

    fn verify(&self) -> Result<(), DataError> {
        self.check(0, self.body_bytes())?;
        let vocab = self.header.vocabulary.size;
        let mut tokens = vec![0; BLOCK_BYTES];
        for start in (0..self.len()).step_by(BLOCK_BYTES) {
            let tokens = &mut tokens[..BLOCK_BYTES.min(self.len() - start)];
            self.window(start, tokens)?;
            if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocab) {
                return Err(self.damaged(&format!("token {token} is not in its vocabulary of {vocab}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::{Tokenizer, VocabularyName};

    fn token(i: u32, vocab: usize) -> u32 {
        (u64::from(i) * 7919 % vocab as u64) as u32
    }

    fn wide() -> Vocabulary {
        Vocabulary { name: VocabularyName::Json(7 << 90), size: 128_256, end: Some(128_001) }
    }

    /// The file of a header and a body, with the checksums that belong to them.
    fn file_of(header: Header, body: &[u8]) -> Vec<u8> {
        let checksums: Vec<u8> = body.chunks(BLOCK_BYTES).flat_map(|block| xxh3_64(block).to_le_bytes()).collect();
        let header = Header { checksums_hash: xxh3_64(&checksums), ..header };
        [&header.to_bytes()[..], body, &checksums].concat()
    }

    /// A valid file of `count` tokens in documents of `length`.
    fn bytes_of(vocabulary: Vocabulary, count: u32, length: u32) -> Vec<u8> {
        let documents = count.div_ceil(length);
        let header = Header {
            vocabulary,
            tokens: count.into(),
            documents: documents.into(),
            corpus_key: 1 << 100,
            checksums_hash: 0,
        };
        let mut body = Vec::new();
        header.element().write(&(0..count).map(|i| token(i, vocabulary.size)).collect::<Vec<_>>(), &mut body);
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend((0..documents).flat_map(|document| u64::from(document * length).to_le_bytes()));
        file_of(header, &body)
    }

    fn open(bytes: &[u8]) -> Result<TokenFile, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tokens");
        fs::write(&path, bytes).unwrap();
        TokenFile::open(&path)
    }

    fn verify(bytes: &[u8]) -> Result<(), DataError> {
        open(bytes)?.verify()
    }

    #[test]
    fn windows_give_the_tokens() {
        for vocabulary in [Tokenizer::Gpt2.vocabulary(), Tokenizer::Bytes.vocabulary(), wide()] {
            let file = open(&bytes_of(vocabulary, 100, 30)).unwrap();
            assert_eq!((file.vocabulary(), file.len(), file.corpus_key()), (vocabulary, 100, 1 << 100));
            let mut out = [0; 3];
            file.window(97, &mut out).unwrap();
            assert_eq!(out, [97, 98, 99].map(|i| token(i, vocabulary.size)));
            let mut starts = [0; 6];
            file.document_starts(0, &mut starts).unwrap();
            assert_eq!((file.documents().unwrap(), starts), (4, [0, 30, 60, 90, 100, 100]));
            for start in [98, usize::MAX] {
                let error = file.window(start, &mut out).unwrap_err();
                assert!(matches!(error, DataError::OutOfRange { present: 100, .. }), "{error}");
            }
        }
    }

    /// Only the block that a window touches is read: damage elsewhere is found when it is its turn.
    #[test]
    fn tokens_are_checked_when_they_are_read() {
        let mut bytes = bytes_of(Tokenizer::Bytes.vocabulary(), 200_000, 200_000);
        bytes[HEADER_BYTES + 2 * BLOCK_BYTES] ^= 1;
        let file = open(&bytes).unwrap();
        let mut out = [0; 100];
        file.window(2 * BLOCK_BYTES - 100, &mut out).unwrap();
        for _ in 0..2 {
            let error = file.window(2 * BLOCK_BYTES - 99, &mut out).unwrap_err().to_string();
            assert!(error.contains("bytes 131200 to 196736"), "{error}");
        }
        assert!(matches!(file.verify(), Err(DataError::Damaged { .. })));
    }

    proptest! {
        #[test]
        fn every_changed_bit_and_every_cut_is_reported(
            vocabulary in prop::sample::select(vec![
                Tokenizer::Gpt2.vocabulary(), Tokenizer::Bytes.vocabulary(), wide(),
            ]),
            count in 1_u32..300,
            length in 1_u32..50,
            place in any::<prop::sample::Index>(),
            header_bit in 0..HEADER_BYTES * 8,
        ) {
            let good = bytes_of(vocabulary, count, length);
            prop_assert!(verify(&good).is_ok());
            for bit in [header_bit, place.index(good.len() * 8)] {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                match (bit / 8, verify(&bad)) {
                    (0..8, Err(DataError::Foreign { .. })) => {}
                    (8..12, Err(DataError::WrongVersion { .. })) => {}
                    (12.., Err(DataError::Damaged { .. })) => {}
                    (byte, other) => prop_assert!(false, "byte {}: {:?}", byte, other),
                }
            }
            match (place.index(good.len()), verify(&good[..place.index(good.len())])) {
                (0, Err(DataError::Foreign { .. })) | (1.., Err(DataError::Damaged { .. })) => {}
                (length, other) => prop_assert!(false, "length {}: {:?}", length, other),
            }
            let longer = [&good[..], b"x"].concat();
            prop_assert!(matches!(verify(&longer), Err(DataError::Damaged { .. })), "a byte too many");
        }
    }

    #[test]
    fn a_header_that_lies_is_reported() {
        let body = [&u16::MAX.to_le_bytes()[..], &[0; 6], &[0; 8]].concat();
        let file = |vocabulary, tokens, documents, body: &[u8]| {
            let header = Header { vocabulary, tokens, documents, corpus_key: 0, checksums_hash: 0 };
            verify(&file_of(header, body)).unwrap_err().to_string()
        };
        let gpt2 = Tokenizer::Gpt2.vocabulary();
        assert!(file(gpt2, 4, 1, &body).contains("token 65535 is not in its vocabulary of 50257"));
        assert!(file(gpt2, u64::MAX, 1, &body).contains("18446744073709551615 tokens"));
        assert!(file(Tokenizer::Bytes.vocabulary(), 4, 2, &body).contains("its 4 tokens and 2 documents make 160"));
        assert!(file(gpt2, 4, 0, &body[..8]).contains("belong to no document"));
        let index = |start: u64| [&body[..8], &start.to_le_bytes()].concat();
        assert!(file(gpt2, 4, 1, &index(1)).contains("document 0 begins at token 1"));
        assert!(file(gpt2, 4, 1, &index(u64::MAX)).contains("document 0 begins at token 18446744073709551615"));
        assert!(file(Vocabulary { size: 50258, ..gpt2 }, 4, 1, &body).contains("is not that of `gpt2`"));
        assert!(file(Vocabulary { end: Some(128_256), ..wide() }, 4, 1, &body).contains("token 128256, which ends"));
    }

    #[test]
    fn other_files_are_reported() {
        for (content, reason) in [(&b""[..], "empty"), (b"Once upon a time", "QDTOKENS"), (b"QDTOK", "header")] {
            let error = open(content).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("x.tokens"), "{error}");
        }
        let first_version = [&b"QDTOKENS\x01\0\0\0"[..], &[0; 60]].concat();
        let error = open(&first_version).unwrap_err().to_string();
        assert!(error.contains("version 1") && error.contains("prepare it again"), "{error}");
        let error = TokenFile::open(Path::new("/absent/x.tokens")).unwrap_err();
        assert!(matches!(&error, DataError::File(error) if error.is_missing()), "{error}");
        assert!(TokenFile::open(Path::new("/dev")).unwrap_err().to_string().contains("it is a directory"));
    }
}
