//! The tokenizer of a run's text, for people and documents.

use quadrille_data::{DataError, Reading};
use serde::Serialize;

use crate::tokenizer_rule::TokenizerOrigin;

/// The tokenizer of text that is read.
pub(super) struct UsedTokenizer {
    pub name: String,
    pub origin: TokenizerOrigin,
    /// Special tokens of documents; `None` where no text is read.
    pub special: Option<SpecialTokensRead>,
}

/// Special tokens of documents, besides the end token that each has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SpecialTokensRead {
    /// Tokens before each document.
    begin: Vec<u32>,
    /// Tokens after each document; an end token at their end is the document's.
    end: Vec<u32>,
    /// True if special tokens that are spelled out in text are parsed.
    parsed: bool,
    /// The tokens of `begin` as text.
    #[serde(skip)]
    text: String,
}

impl SpecialTokensRead {
    /// Special tokens of documents that are read.
    ///
    /// # Errors
    /// Tokens that the tokenizer does not have.
    pub fn of(reading: &Reading) -> Result<Self, DataError> {
        let affixes = reading.affixes();
        let text = String::from_utf8_lossy(&reading.tokenizer.decode(&affixes.begin)?).into_owned();
        Ok(Self { begin: affixes.begin.clone(), end: affixes.end.clone(), parsed: reading.special.parsed, text })
    }

    /// True if documents have none and text is text.
    pub fn is_empty(&self) -> bool {
        self.begin.is_empty() && self.end.is_empty() && !self.parsed
    }
}

/// The tokenizer of text, the reason for it and the special tokens of documents, as a line before the text is read shows them.
///
/// # Errors
/// Special tokens that the tokenizer does not have.
pub fn describe_tokenizer(reading: &Reading, origin: TokenizerOrigin) -> Result<String, DataError> {
    let special = Some(SpecialTokensRead::of(reading)?);
    Ok(UsedTokenizer { name: reading.tokenizer.to_string(), origin, special }.description())
}

impl UsedTokenizer {
    /// Name, reason and special tokens, as a line before the first step shows them.
    pub fn description(&self) -> String {
        let Self { name, origin, special } = self;
        let reason = origin.reason();
        let special = special.as_ref().map_or(String::new(), |special| {
            let begin = match special.begin.as_slice() {
                [] => "; documents begin without BOS".to_owned(),
                tokens => format!("; documents begin with BOS {} {tokens:?}", special.text),
            };
            begin + if special.parsed { "; special tokens in text are parsed" } else { "" }
        });
        format!("{name}, {reason}{special}")
    }
}
