//! Which tokens a file holds: enough to know whether two files, or a file and a tokenizer, belong together.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

/// The identity of a tokenizer, without the tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VocabularyName {
    /// GPT-2's byte pairs.
    Gpt2,
    /// Bytes.
    Bytes,
    /// A `tokenizer.json` with this XXH3-128 of its bytes.
    Json(u128),
}

impl VocabularyName {
    /// Name of the tokens of a `tokenizer.json` with these bytes.
    pub fn of_json(bytes: &[u8]) -> Self {
        Self::Json(xxh3_128(bytes))
    }
}

/// The tokens of a tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vocabulary {
    /// Whose tokens they are.
    pub name: VocabularyName,
    /// Number of different tokens; tokens are `0..size`.
    pub size: usize,
    /// The token that ends a document, where there is one.
    pub end: Option<u32>,
}

impl fmt::Display for VocabularyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt2 => f.pad("gpt2"),
            Self::Bytes => f.pad("bytes"),
            Self::Json(hash) => f.pad(&format!("json-{hash:032x}")),
        }
    }
}
