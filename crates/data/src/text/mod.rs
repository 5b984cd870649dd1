//! Text files, folders of them, JSON lines and Parquet: found, read in pieces, and encoded in bounded memory.

mod bad_lines;
mod encode;
mod first_line;
mod format;
mod inputs;
mod kind;
mod lines;
mod parquet;
mod pieces;

pub(crate) use bad_lines::DocumentCount;
pub use bad_lines::{LineUnit, SkippedLines};
pub(crate) use encode::{count_documents, encode_documents};
pub(crate) use format::kind_of;
pub use format::{Format, InputFormat};
pub(crate) use inputs::{Input, collect, corpus_key};

use serde::{Deserialize, Serialize};

use crate::{Affixes, DataError, Tokenizer};

/// How text is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What makes tokens of it.
    pub tokenizer: Tokenizer,
    /// The field of JSON lines, or column of Parquet files, that holds the text.
    pub text_field: String,
    /// Format of files that do not show theirs.
    pub format: InputFormat,
    /// Whether files that are no text are read as if they were ([`Format::Binary`]).
    pub binary: bool,
    /// True if lines or rows without a text are skipped and counted; else they are errors.
    pub skip_bad_lines: bool,
    /// Special tokens of documents.
    pub special: SpecialTokens,
}

/// Special tokens of documents of text, besides the end token that each of them gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecialTokens {
    /// True if documents have those that the tokenizer's own rule puts around a text ([`Tokenizer::affixes`]).
    pub added: bool,
    /// True if special tokens that are spelled out in text are those tokens, not text.
    pub parsed: bool,
}

impl SpecialTokens {
    /// No special tokens, as in runs before they were a choice.
    pub const NONE: Self = Self { added: false, parsed: false };
}

impl Default for SpecialTokens {
    /// Adds the tokens of the tokenizer's own rule, and parses none in text.
    fn default() -> Self {
        Self { added: true, parsed: false }
    }
}

impl Reading {
    /// Refuses files that are no text, unless they are to be read all the same.
    ///
    /// # Errors
    /// [`DataError::Binary`], [`DataError::OtherKind`].
    pub(crate) fn check(&self, inputs: &[Input]) -> Result<(), DataError> {
        match inputs.iter().find(|input| input.format == Format::Binary).filter(|_| !self.binary) {
            Some(Input { path, .. }) => Err(match kind_of(path) {
                Some((kind, remedy)) => DataError::OtherKind { path: path.clone(), kind, remedy },
                None => DataError::Binary(path.clone()),
            }),
            None => Ok(()),
        }
    }

    /// The text of JSON lines is in the field `text`.
    pub fn new(tokenizer: Tokenizer) -> Self {
        Self {
            tokenizer,
            text_field: TextRules::FIELD.to_owned(),
            format: InputFormat::Auto,
            binary: false,
            skip_bad_lines: false,
            special: SpecialTokens::default(),
        }
    }

    /// Tokens around a document, besides its end token.
    pub fn affixes(&self) -> &Affixes {
        if self.special.added { self.tokenizer.affixes() } else { Affixes::NONE }
    }

    /// Rules that find the format of files and the documents in them.
    pub fn rules(&self) -> TextRules<'_> {
        TextRules { field: &self.text_field, format: self.format, skip_bad_lines: self.skip_bad_lines }
    }
}

/// Rules that find the format of files without tokens, and the documents in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRules<'a> {
    /// The field of JSON lines that holds the text.
    pub field: &'a str,
    /// The format, if it is not to be found.
    pub format: InputFormat,
    /// [`Reading::skip_bad_lines`].
    pub skip_bad_lines: bool,
}

impl TextRules<'_> {
    /// The field of JSON lines where none is named.
    pub const FIELD: &'static str = "text";

    /// Refuses a named field, and the skipping of bad lines, where no file has fields.
    ///
    /// # Errors
    /// [`DataError::UnusedField`], [`DataError::UnusedSkipping`].
    pub fn check(self, formats: impl IntoIterator<Item = Format>) -> Result<(), DataError> {
        if formats.into_iter().any(Format::has_fields) {
            return Ok(());
        }
        match self.field {
            Self::FIELD if self.skip_bad_lines => Err(DataError::UnusedSkipping),
            Self::FIELD => Ok(()),
            field => Err(DataError::UnusedField(field.to_owned())),
        }
    }
}

impl Default for TextRules<'_> {
    fn default() -> Self {
        Self { field: Self::FIELD, format: InputFormat::Auto, skip_bad_lines: false }
    }
}

/// A part of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Text before it in the document, behind which it has its tokens; empty if it has them alone.
    pub context: Vec<u8>,
    /// UTF-8, unless the tokenizer takes any bytes.
    pub bytes: Vec<u8>,
    /// Where it begins in its file.
    pub offset: u64,
    /// Whether it is the last part.
    pub ends: bool,
}

impl Piece {
    /// A whole document.
    fn document(text: String, offset: u64) -> Self {
        Self { context: Vec::new(), bytes: text.into_bytes(), offset, ends: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_lines_are_refused_where_no_file_has_lines() {
        let skipping = TextRules { skip_bad_lines: true, ..TextRules::default() };
        let named = TextRules { field: "body", ..skipping };
        for formats in [[Format::Text, Format::JsonLines], [Format::Parquet, Format::Quadrille]] {
            assert!([skipping, named].iter().all(|rules| rules.check(formats).is_ok()));
        }
        let formats = [Format::Text, Format::Quadrille];
        assert!(matches!(skipping.check(formats), Err(DataError::UnusedSkipping)));
        assert!(matches!(named.check(formats), Err(DataError::UnusedField(field)) if field == "body"));
        assert!(TextRules::default().check(formats).is_ok());
    }
}
