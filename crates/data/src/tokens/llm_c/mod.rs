//! llm.c's token files: a header of 256 numbers of 4 bytes (magic number, version, number of tokens, zeros), then the tokens.
//!
//! | magic number | version | tokens | documents begin with |
//! |---|---|---|---|
//! | 20240520 | 1 | GPT-2's, 2 bytes | 50256 |
//! | 20240801 | 7 | Llama 3's, 4 bytes | 128000 |
//!
//! What lies before the first such token is the rest of a document of the file before this one.

mod file;
mod writer;

use crate::tokens::Element;
pub use file::LlmCFile;
pub(crate) use writer::LlmCWriter;

/// Bytes before the tokens.
const HEADER_BYTES: usize = 1024;
/// What messages call it.
const FORMAT: &str = "llm.c token file";

/// What a magic number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    magic: u32,
    version: u32,
    element: Element,
    /// The token that begins a document.
    begin: u32,
}

const GPT2: Kind = Kind { magic: 20_240_520, version: 1, element: Element::U16, begin: 50_256 };
const LLAMA3: Kind = Kind { magic: 20_240_801, version: 7, element: Element::U32, begin: 128_000 };
/// Questions with several answers, in the same extension.
const EVALUATION: u32 = 20_240_522;

/// Whether a file that begins with `bytes` is one of llm.c's.
pub(crate) fn is_llm_c(bytes: &[u8]) -> bool {
    let magic = bytes.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    magic.is_some_and(|magic| [GPT2.magic, LLAMA3.magic, EVALUATION].contains(&magic))
}
