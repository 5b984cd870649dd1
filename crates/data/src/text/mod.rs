//! Text files, folders of them, and JSON lines: found, read in pieces, and encoded in bounded memory.

mod encode;
mod format;
mod inputs;
mod lines;
mod pieces;

pub(crate) use encode::{count_documents, encode_documents};
pub use format::Format;
pub(crate) use inputs::{Input, collect, corpus_key};

use crate::{DataError, Tokenizer};

/// How text is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What makes tokens of it.
    pub tokenizer: Tokenizer,
    /// The field of JSON lines that holds the text.
    pub text_field: String,
    /// Whether files that are no text are read as if they were ([`Format::Binary`]).
    pub binary: bool,
}

impl Reading {
    /// Refuses files that are no text, unless they are to be read all the same.
    ///
    /// # Errors
    /// [`DataError::Binary`].
    pub(crate) fn check(&self, inputs: &[Input]) -> Result<(), DataError> {
        match inputs.iter().find(|input| input.format == Format::Binary).filter(|_| !self.binary) {
            Some(input) => Err(DataError::Binary(input.path.clone())),
            None => Ok(()),
        }
    }

    /// The text of JSON lines is in the field `text`.
    pub fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, text_field: "text".to_owned(), binary: false }
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
