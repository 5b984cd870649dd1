//! Tokenizers: GPT-2's byte-pair encoding and bytes, which are built in, and any `tokenizer.json`.

mod affixes;
mod chat;
mod check;
mod choice;
mod decoder;
mod json;
mod python_json;
mod python_repr;
mod settings;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tiktoken_rs::r50k_base_singleton;

use crate::{DataError, Vocabulary, VocabularyName};
pub use affixes::Affixes;
pub use chat::ChatMessage;
pub use choice::TokenizerChoice;
pub use decoder::Decoder;
pub use json::JsonTokenizer;

/// GPT-2's one special token.
const END_OF_TEXT: &str = "<|endoftext|>";

/// How text becomes tokens. Cheap to clone; ranks of a process may share one. Two are equal if they give the same tokens.
#[derive(Debug, Clone)]
pub enum Tokenizer {
    /// GPT-2's byte-pair encoding, 50257 tokens. Token 50256, `<|endoftext|>`, ends a document; those characters
    /// in a text are ordinary text, unless special tokens are parsed.
    Gpt2,
    /// A token is a byte, 256 tokens. The byte 0 ends a document.
    Bytes,
    /// A tokenizer read from a `tokenizer.json`.
    Json(Arc<JsonTokenizer>),
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, see [`JsonTokenizer::open`].
    ///
    /// # Errors
    /// Those of [`JsonTokenizer::open`].
    pub fn from_file(path: &Path) -> Result<Self, DataError> {
        Ok(Self::Json(Arc::new(JsonTokenizer::open(path)?)))
    }

    /// Which tokens it makes.
    pub fn vocabulary(&self) -> Vocabulary {
        match self {
            Self::Gpt2 => Vocabulary { name: VocabularyName::Gpt2, size: 50257, end: Some(50256) },
            Self::Bytes => Vocabulary { name: VocabularyName::Bytes, size: 256, end: Some(0) },
            Self::Json(json) => json.vocabulary(),
        }
    }

    /// One more than the largest token; tokens are `0..vocab()`, where those of a `tokenizer.json` may leave holes, see
    /// [`Self::has`].
    pub fn vocab(&self) -> usize {
        self.vocabulary().size
    }

    /// Whether there is a token of this id.
    pub fn has(&self, token: u32) -> bool {
        match self {
            Self::Json(json) => json.has(token),
            _ => (token as usize) < self.vocab(),
        }
    }

    /// The token that ends every document, where it is known.
    pub fn end_of_document(&self) -> Option<u32> {
        self.vocabulary().end
    }

    /// The token that begins an empty text: BOS, or the end of a document without it.
    pub fn beginning(&self) -> Option<u32> {
        match self {
            Self::Json(json) => json.begin().or(self.end_of_document()),
            _ => self.end_of_document(),
        }
    }

    /// The token BOS, of a tokenizer that has one.
    pub fn bos(&self) -> Option<u32> {
        match self {
            Self::Json(json) => json.bos(),
            _ => None,
        }
    }

    /// Tokens that the tokenizer's own rule puts around a text; none of the built-in tokenizers.
    pub fn affixes(&self) -> &Affixes {
        match self {
            Self::Json(json) => json.affixes(),
            _ => Affixes::NONE,
        }
    }

    /// Ids of the special tokens that are parsed in text where that is asked for, in order.
    ///
    /// # Errors
    /// [`DataError::TokenizerFile`] of a file that does not work.
    pub fn parsed_special(&self) -> Result<Vec<u32>, DataError> {
        match self {
            Self::Gpt2 => Ok(self.end_of_document().into_iter().collect()),
            Self::Bytes => Ok(Vec::new()),
            Self::Json(json) => json.parsed_ids(),
        }
    }

    /// Tokens of a chat with the beginning of the answer, by the chat template of its folder. Special tokens that the
    /// template spells out are parsed, in messages, too; none are added.
    ///
    /// # Errors
    /// [`DataError::NoChat`], [`DataError::NoChatTemplate`], [`DataError::ChatTemplate`]; those of [`Self::encode`].
    pub fn encode_chat(&self, messages: &[ChatMessage]) -> Result<Vec<u32>, DataError> {
        match self {
            Self::Json(json) => self.encode_as(&json.chat_template()?.render(messages)?, true),
            _ => Err(DataError::NoChat(self.to_string())),
        }
    }

    /// The tokens of `text`, without a document's beginning or end; spelled-out special tokens are ordinary text.
    ///
    /// # Errors
    /// [`DataError::NotEncodable`], for GPT-2 with about a million characters of white space in a row;
    /// [`DataError::TokenizerFile`] of a file that does not work.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.encode_as(text, false)
    }

    /// [`Self::encode`]; with `parse_special`, special tokens that are spelled out are those tokens.
    ///
    /// # Errors
    /// Those of [`Self::encode`].
    pub fn encode_as(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, DataError> {
        let failed = |reason| DataError::NotEncodable { tokenizer: self.to_string(), bytes: text.len(), reason };
        let special = HashSet::from_iter(parse_special.then_some(END_OF_TEXT));
        match self {
            // `encode_ordinary` gives the same tokens but panics where this returns an error.
            Self::Gpt2 => match r50k_base_singleton().encode(text, &special) {
                Ok((tokens, _)) => Ok(tokens),
                Err(error) => Err(failed(error.message)),
            },
            Self::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Self::Json(json) => json.encode(text, parse_special),
        }
    }

    /// The bytes that `tokens` spell: UTF-8 if they are the tokens of a whole text, while a part of them may begin
    /// or end inside a character (of a `tokenizer.json`, such a part gives U+FFFD).
    ///
    /// # Errors
    /// [`DataError::UnknownToken`] for a token that it does not [have](Self::has); [`DataError::TokenizerFile`] of a file that
    /// does not work.
    pub fn decode(&self, tokens: &[u32]) -> Result<Vec<u8>, DataError> {
        let vocab = self.vocab();
        let unknown = |token| DataError::UnknownToken { token, tokenizer: self.to_string(), vocab };
        if let Some(&token) = tokens.iter().find(|&&token| !self.has(token)) {
            return Err(unknown(token));
        }
        match self {
            Self::Gpt2 => r50k_base_singleton().decode_bytes(tokens).map_err(|error| unknown(error.token)),
            Self::Bytes => Ok(tokens.iter().map(|&token| token as u8).collect()),
            Self::Json(json) => Ok(json.decode(tokens)?.into_bytes()),
        }
    }

    /// The last place at which `text` may be cut, whatever comes after it; `None` if there is none.
    ///
    /// GPT-2 first cuts text into pieces by a regular expression. No piece goes from a character that is not white
    /// space to one that is, and the expression looks ahead but never back: the place before such white space is
    /// always the end of a piece, whatever comes before and after. Of a `tokenizer.json` the places are tried.
    pub(crate) fn cut(&self, text: &str, parse_special: bool) -> Result<Option<Cut>, DataError> {
        let alone = |place: usize| (place > 0).then_some(Cut { place, context: 0 });
        match self {
            Self::Bytes => Ok(alone(text.len())),
            Self::Gpt2 => Ok(ends_of_words(text).next().and_then(alone)),
            Self::Json(json) => json.cut(text, parse_special),
        }
    }

    /// The tokens of `text` where it follows `context`, which ends at a [`Cut`]; `None` if tokens cross the cut.
    ///
    /// # Errors
    /// Those of [`Self::encode`].
    pub(crate) fn encode_behind(
        &self,
        context: &str,
        text: &str,
        parse_special: bool,
    ) -> Result<Option<Vec<u32>>, DataError> {
        let encode = |text: &str| self.encode_as(text, parse_special);
        if context.is_empty() {
            return encode(text).map(Some);
        }
        let before = encode(context)?;
        let all = encode(&[context, text].concat())?;
        Ok(all.strip_prefix(&before[..]).map(<[u32]>::to_vec))
    }
}

/// A place at which a text is cut. The tokens of both sides are those of the whole, if the second side is encoded behind the
/// context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Bytes before the cut.
    pub place: usize,
    /// The last bytes before the cut that are the context of the second side.
    pub context: usize,
}

/// The places in `text` between a character that is not white space and one that is, the last first.
fn ends_of_words(text: &str) -> impl Iterator<Item = usize> {
    let mut after_is_space = false;
    text.char_indices().rev().filter_map(move |(start, character)| {
        let ends = after_is_space && !character.is_whitespace();
        after_is_space = character.is_whitespace();
        ends.then_some(start + character.len_utf8())
    })
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        self.vocabulary() == other.vocabulary()
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt2 => f.pad("gpt2"),
            Self::Bytes => f.pad("bytes"),
            Self::Json(json) => f.pad(&json.path().display().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpt2_gives_the_published_tokens() {
        // From OpenAI's and Hugging Face's documentation of the vocabulary.
        assert_eq!(Tokenizer::Gpt2.encode("Hello world").unwrap(), [15496, 995]);
        assert_eq!(Tokenizer::Gpt2.encode("Hello, I'm a").unwrap(), [15496, 11, 314, 1101, 257]);
        assert_eq!(Tokenizer::Gpt2.decode(&[50256]).unwrap(), b"<|endoftext|>");
        let spelled = Tokenizer::Gpt2.encode("<|endoftext|>").unwrap();
        assert!(spelled.len() > 1 && !spelled.contains(&50256), "{spelled:?}");
    }

    #[test]
    fn decoding_undoes_encoding() {
        let text = "Größe 12\n\n  naïve 漢字 🦀 don't\t!";
        for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
            let tokens = tokenizer.encode(text).unwrap();
            assert!(tokens.iter().all(|&token| (token as usize) < tokenizer.vocab()));
            assert_eq!(tokenizer.decode(&tokens).unwrap(), text.as_bytes(), "{tokenizer}");
        }
    }

    #[test]
    fn tokens_outside_the_vocabulary_are_errors() {
        for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
            let token = tokenizer.vocab() as u32;
            let error = tokenizer.decode(&[1, token]).unwrap_err();
            assert!(matches!(error, DataError::UnknownToken { token: found, .. } if found == token), "{error}");
        }
    }

    #[test]
    fn endless_white_space_is_an_error() {
        let text = " ".repeat(3_000_000) + "x";
        let error = Tokenizer::Gpt2.encode(&text).unwrap_err();
        assert!(matches!(error, DataError::NotEncodable { bytes: 3_000_001, .. }), "{error}");
    }
}
