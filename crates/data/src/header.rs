//! The first 64 bytes of a token file. All numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0-7 | the magic bytes `QDTOKENS` |
//! | 8-11 | version of the format |
//! | 12-15 | tokenizer: 1 GPT-2, 2 bytes |
//! | 16-19 | size of the vocabulary |
//! | 20-23 | bytes per token: 2 for GPT-2, 1 for bytes |
//! | 24-31 | number of tokens |
//! | 32-47 | key of the corpus: hash of the tokenizer and the sources' paths, sizes and times |
//! | 48-55 | XXH3-64 of the tokens' bytes |
//! | 56-63 | XXH3-64 of the bytes 0-55 |
//!
//! The tokens follow, and nothing after them.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::{DataError, Tokenizer};

/// The version that is written and read.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"QDTOKENS";

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub tokenizer: Tokenizer,
    /// Number of tokens.
    pub count: u64,
    pub corpus_key: u128,
    /// XXH3-64 of the tokens' bytes.
    pub payload_hash: u64,
}

/// Bytes that a token takes in a file.
pub(crate) const fn token_width(tokenizer: Tokenizer) -> usize {
    match tokenizer {
        Tokenizer::Gpt2 => 2,
        Tokenizer::Bytes => 1,
    }
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&tokenizer_number(self.tokenizer).to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.tokenizer.vocab() as u32).to_le_bytes());
        bytes[20..24].copy_from_slice(&(token_width(self.tokenizer) as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.count.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.corpus_key.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.payload_hash.to_le_bytes());
        let hash = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// Reads the header of the file that holds `bytes`, and checks all but the tokens' hash.
    pub fn from_file(path: &Path, bytes: &[u8]) -> Result<Self, DataError> {
        let damaged = |reason: String| DataError::Damaged { path: path.to_path_buf(), reason };
        let foreign = |reason| DataError::Foreign { path: path.to_path_buf(), reason };
        if bytes.is_empty() {
            return Err(foreign("it is empty"));
        }
        if !bytes.starts_with(&MAGIC[..bytes.len().min(8)]) {
            return Err(foreign("it does not begin with `QDTOKENS`"));
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(damaged(format!("it has {} bytes, its header alone needs {HEADER_BYTES}", bytes.len())));
        };
        let version = u32_at(header, 8);
        if version != VERSION {
            return Err(DataError::WrongVersion { path: path.to_path_buf(), found: version, expected: VERSION });
        }
        if u64_at(header, 56) != xxh3_64(&header[..56]) {
            return Err(damaged("the checksum of its header does not fit".to_string()));
        }
        let Some(tokenizer) = tokenizer_numbered(u32_at(header, 12)) else {
            return Err(damaged(format!("its tokenizer has the unknown number {}", u32_at(header, 12))));
        };
        let (vocab, width) = (u32_at(header, 16) as usize, u32_at(header, 20) as usize);
        if (vocab, width) != (tokenizer.vocab(), token_width(tokenizer)) {
            return Err(damaged(format!("a vocabulary of {vocab} in {width} bytes is not that of `{tokenizer}`")));
        }
        let count = u64_at(header, 24);
        let expected = u128::from(count) * width as u128 + HEADER_BYTES as u128;
        if expected != bytes.len() as u128 {
            return Err(damaged(format!("it has {} bytes, its {count} tokens make {expected}", bytes.len())));
        }
        let corpus_key = u128::from(u64_at(header, 32)) | u128::from(u64_at(header, 40)) << 64;
        Ok(Self { tokenizer, count, corpus_key, payload_hash: u64_at(header, 48) })
    }
}

fn tokenizer_number(tokenizer: Tokenizer) -> u32 {
    match tokenizer {
        Tokenizer::Gpt2 => 1,
        Tokenizer::Bytes => 2,
    }
}

fn tokenizer_numbered(number: u32) -> Option<Tokenizer> {
    [Tokenizer::Gpt2, Tokenizer::Bytes].into_iter().find(|&tokenizer| tokenizer_number(tokenizer) == number)
}

fn u32_at(header: &[u8; HEADER_BYTES], start: usize) -> u32 {
    u64_at(header, start) as u32
}

/// The eight bytes from `start` on, at most 56, as a number.
fn u64_at(header: &[u8; HEADER_BYTES], start: usize) -> u64 {
    header[start..start + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
