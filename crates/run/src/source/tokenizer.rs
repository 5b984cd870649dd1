//! The tokenizer of a run's text, for people and documents.

use quadrille_data::{Affixes, DataError, Reading, Tokenizer};
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
    /// Special tokens that are parsed, in order; empty where none are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    special: Vec<u32>,
    /// Tokens before and after each document in words.
    #[serde(skip)]
    text: String,
}

impl SpecialTokensRead {
    /// Special tokens of documents that are read.
    ///
    /// # Errors
    /// Tokens that the tokenizer does not have.
    pub fn of(reading: &Reading) -> Result<Self, DataError> {
        let tokenizer = &reading.tokenizer;
        let parsed = reading.special.parsed;
        let Affixes { begin, end } = reading.affixes().clone();
        let special = if parsed { tokenizer.parsed_special()? } else { Vec::new() };
        let text = around(tokenizer, &begin, &end)?;
        Ok(Self { begin, end, parsed, special, text })
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
            let parsed = if special.parsed { "; special tokens in text are parsed" } else { "" };
            format!("; documents {}{parsed}", special.text)
        });
        format!("{name}, {reason}{special}")
    }
}

/// Tokens around each document in words.
fn around(tokenizer: &Tokenizer, begin: &[u32], end: &[u32]) -> Result<String, DataError> {
    let text = |tokens: &[u32]| tokenizer.decode(tokens).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let begin = match begin {
        [] => "begin without BOS".to_owned(),
        [token] if tokenizer.bos() == Some(*token) => format!("begin with BOS {} {begin:?}", text(begin)?),
        tokens => format!("begin with {} {tokens:?}", text(tokens)?),
    };
    Ok(match end {
        [] => begin,
        tokens => format!("{begin} and end with {} {tokens:?}", text(tokens)?),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quadrille_data::SpecialTokens;
    use serde_json::{Value, json};

    use super::*;

    /// Special tokens of a tokenizer of three words that puts the first one before a text and the second one behind it.
    fn read(config: &Value) -> SpecialTokensRead {
        let folder = tempfile::tempdir().unwrap();
        let added = ["[CLS]", "[SEP]"].iter().enumerate().map(|(id, word)| {
            json!({ "id": id, "content": word, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": true })
        });
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
            "added_tokens": added.collect::<Vec<_>>(), "pre_tokenizer": { "type": "Whitespace" },
            "post_processor": { "type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 0] },
            "model": { "type": "WordLevel", "vocab": { "[CLS]": 0, "[SEP]": 1, "one": 2 }, "unk_token": "[CLS]" },
        });
        let path = folder.path().join("tokenizer.json");
        fs::write(&path, tokenizer.to_string()).unwrap();
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let special = SpecialTokens { added: true, parsed: true };
        SpecialTokensRead::of(&Reading { special, ..Reading::new(Tokenizer::from_file(&path).unwrap()) }).unwrap()
    }

    #[test]
    fn tokens_around_documents_are_called_bos_only_where_they_are() {
        let plain = read(&json!({}));
        assert_eq!(plain.text, "begin with [CLS] [0] and end with [SEP] [1]");
        assert_eq!(read(&json!({ "bos_token": "[CLS]" })).text, "begin with BOS [CLS] [0] and end with [SEP] [1]");
        let bytes = SpecialTokensRead::of(&Reading::new(Tokenizer::Bytes)).unwrap();
        assert_eq!((bytes.text.as_str(), bytes.is_empty()), ("begin without BOS", true));
    }

    /// A run resumes only with the special tokens that it has parsed, which other files of the folder name.
    #[test]
    fn parsed_tokens_are_recorded() {
        let more = read(&json!({ "additional_special_tokens": ["one"] }));
        assert_eq!(json!(more)["special"], json!([0, 1, 2]));
        assert_eq!(json!(read(&json!({})))["special"], json!([0, 1]));
        let plain = SpecialTokensRead::of(&Reading::new(Tokenizer::Gpt2)).unwrap();
        assert_eq!(json!(plain), json!({ "begin": [], "end": [], "parsed": false }));
    }
}
