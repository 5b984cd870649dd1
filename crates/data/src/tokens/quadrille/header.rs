//! Token files, version 2. All numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0-7 | the magic bytes `QDTOKENS` |
//! | 8-11 | version of the format |
//! | 12-15 | tokenizer: 1 GPT-2, 2 bytes, 3 a `tokenizer.json` |
//! | 16-19 | size of the vocabulary |
//! | 20-23 | bytes per token: 1, 2 or 4, the least that hold the vocabulary |
//! | 24-31 | number of tokens |
//! | 32-39 | number of documents |
//! | 40-47 | the token that ends a document, 2^64 - 1 if there is none |
//! | 48-63 | key of the corpus: hash of the tokenizer and the sources' paths, sizes and times; 0 if it has none |
//! | 64-79 | XXH3-128 of the `tokenizer.json`, else 0 |
//! | 80-87 | XXH3-64 of the checksums |
//! | 88-119 | 0 |
//! | 120-127 | XXH3-64 of the bytes 0-119 |
//!
//! The body follows: the tokens, zeros up to a multiple of 8 bytes, the position of each document's first token in 8
//! bytes; then the checksums, XXH3-64 of each [`BLOCK_BYTES`] of the body; and nothing after them.

use xxhash_rust::xxh3::xxh3_64;

use crate::tokens::{Element, StoredFile, u32_at, u64_at};
use crate::{DataError, Vocabulary, VocabularyName};

/// The version that is written and read.
pub(crate) const VERSION: u32 = 2;
/// What every version begins with.
pub(crate) const MAGIC: &[u8; 8] = b"QDTOKENS";
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 128;
/// Bytes of the body that share a checksum: about what a system reads ahead, so that checking reads little more than is
/// wanted.
pub(super) const BLOCK_BYTES: usize = 1 << 16;

const GPT2: Vocabulary = Vocabulary { name: VocabularyName::Gpt2, size: 50257, end: Some(50256) };
const BYTES: Vocabulary = Vocabulary { name: VocabularyName::Bytes, size: 256, end: Some(0) };

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub vocabulary: Vocabulary,
    /// Number of tokens.
    pub tokens: u64,
    /// Number of documents.
    pub documents: u64,
    pub corpus_key: u128,
    /// XXH3-64 of the checksums.
    pub checksums_hash: u64,
}

impl Header {
    /// How a token lies in the file.
    pub fn element(&self) -> Element {
        Element::narrowest(self.vocabulary.size)
    }

    /// Where the documents' index begins in the body.
    pub fn index_start(&self) -> u128 {
        (u128::from(self.tokens) * self.element().width() as u128).next_multiple_of(8)
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> u128 {
        self.index_start() + 8 * u128::from(self.documents)
    }

    /// Bytes of the whole file.
    fn file_bytes(&self) -> u128 {
        HEADER_BYTES as u128 + self.body_bytes() + 8 * self.body_bytes().div_ceil(BLOCK_BYTES as u128)
    }

    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Vocabulary { name, size, end } = self.vocabulary;
        let (number, hash) = match name {
            VocabularyName::Gpt2 => (1_u32, 0),
            VocabularyName::Bytes => (2, 0),
            VocabularyName::Json(hash) => (3, hash),
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        for number in [VERSION, number, size as u32, self.element().width() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.tokens, self.documents, end.map_or(u64::MAX, u64::from)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.corpus_key.to_le_bytes());
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes.extend_from_slice(&self.checksums_hash.to_le_bytes());
        bytes.resize(HEADER_BYTES - 8, 0);
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// Reads the header of a file and checks everything but the checksums.
    pub fn from_file(file: &StoredFile) -> Result<Self, DataError> {
        let path = file.path();
        let length = file.len();
        let bytes = file.start::<HEADER_BYTES>()?;
        let damaged = |reason: String| DataError::Damaged { path: path.to_path_buf(), reason };
        let foreign = |reason| DataError::Foreign { path: path.to_path_buf(), reason };
        if bytes.is_empty() {
            return Err(foreign("it is empty"));
        }
        if !bytes.starts_with(&MAGIC[..bytes.len().min(8)]) {
            return Err(foreign("it does not begin with `QDTOKENS`"));
        }
        if bytes.len() >= 12 && u32_at(&bytes, 8) != VERSION {
            let found = u32_at(&bytes, 8);
            return Err(DataError::WrongVersion { path: path.to_path_buf(), found, expected: VERSION });
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(damaged(format!("it has {length} bytes, its header alone needs {HEADER_BYTES}")));
        };
        if u64_at(header, 120) != xxh3_64(&header[..120]) {
            return Err(damaged("the checksum of its header does not fit".to_string()));
        }
        let read = Self {
            vocabulary: vocabulary(header).map_err(damaged)?,
            tokens: u64_at(header, 24),
            documents: u64_at(header, 32),
            corpus_key: u128_at(header, 48),
            checksums_hash: u64_at(header, 80),
        };
        if u32_at(header, 20) as usize != read.element().width() {
            let size = read.vocabulary.size;
            let width = u32_at(header, 20);
            return Err(damaged(format!("tokens of {width} bytes are not those of a vocabulary of {size}")));
        }
        if read.file_bytes() != length as u128 {
            return Err(damaged(format!(
                "it has {length} bytes, its {} tokens and {} documents make {}",
                read.tokens,
                read.documents,
                read.file_bytes()
            )));
        }
        Ok(read)
    }
}

/// The vocabulary in a header, or what is wrong with it.
fn vocabulary(header: &[u8; HEADER_BYTES]) -> Result<Vocabulary, String> {
    let name = match u32_at(header, 12) {
        1 => VocabularyName::Gpt2,
        2 => VocabularyName::Bytes,
        3 => VocabularyName::Json(u128_at(header, 64)),
        other => return Err(format!("its tokenizer has the unknown number {other}")),
    };
    let size = u32_at(header, 16) as usize;
    let end = u64_at(header, 40);
    let end = match end {
        u64::MAX => None,
        end if end < size as u64 => Some(end as u32),
        end => return Err(format!("token {end}, which ends documents, is not in its vocabulary of {size}")),
    };
    let read = Vocabulary { name, size, end };
    match name {
        VocabularyName::Gpt2 if read != GPT2 => Err(format!("a vocabulary of {size} is not that of `gpt2`")),
        VocabularyName::Bytes if read != BYTES => Err(format!("a vocabulary of {size} is not that of `bytes`")),
        _ => Ok(read),
    }
}

fn u128_at(header: &[u8; HEADER_BYTES], start: usize) -> u128 {
    u128::from(u64_at(header, start)) | u128::from(u64_at(header, start + 8)) << 64
}
