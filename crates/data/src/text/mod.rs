//! Text files, folders of them, and JSON lines: found, read in pieces, and encoded in bounded memory.

mod encode;
mod format;
mod inputs;
mod lines;
mod pieces;

pub(crate) use encode::{count_documents, encode_documents};
pub use format::Format;
pub(crate) use inputs::{Input, collect, corpus_key};

use crate::Tokenizer;

/// How text is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What makes tokens of it.
    pub tokenizer: Tokenizer,
    /// The field of JSON lines that holds the text.
    pub text_field: String,
}

impl Reading {
    /// The text of JSON lines is in the field `text`.
    pub fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, text_field: "text".to_owned() }
    }
}

/// A part of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// UTF-8, unless the tokenizer takes any bytes.
    pub bytes: Vec<u8>,
    /// Where it begins in its file.
    pub offset: u64,
    /// Whether it is the last part.
    pub ends: bool,
}
