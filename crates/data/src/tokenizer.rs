//! The two tokenizers: GPT-2's byte-pair encoding, and bytes.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tiktoken_rs::r50k_base_singleton;

use crate::DataError;

/// How text becomes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tokenizer {
    /// GPT-2's byte-pair encoding, 50257 tokens. Token 50256, `<|endoftext|>`, ends a document; those characters
    /// in a text are ordinary text.
    Gpt2,
    /// A token is a byte, 256 tokens. The byte 0 ends a document.
    Bytes,
}

impl Tokenizer {
    /// Number of different tokens; tokens are `0..vocab()`.
    pub const fn vocab(self) -> usize {
        match self {
            Self::Gpt2 => 50257,
            Self::Bytes => 256,
        }
    }

    /// The token that ends every document.
    pub const fn end_of_document(self) -> u32 {
        match self {
            Self::Gpt2 => 50256,
            Self::Bytes => 0,
        }
    }

    /// The tokens of `text`, without a document's end.
    ///
    /// # Errors
    /// [`DataError::NotEncodable`] for GPT-2 and about a million characters of white space in a row.
    pub fn encode(self, text: &str) -> Result<Vec<u32>, DataError> {
        match self {
            // `encode_ordinary` gives the same tokens but panics where this returns an error.
            Self::Gpt2 => match r50k_base_singleton().encode(text, &HashSet::new()) {
                Ok((tokens, _)) => Ok(tokens),
                Err(error) => Err(DataError::NotEncodable { bytes: text.len(), reason: error.message }),
            },
            Self::Bytes => Ok(text.bytes().map(u32::from).collect()),
        }
    }

    /// The bytes that `tokens` spell: UTF-8 if they are the tokens of a whole text, while a part of them may begin
    /// or end inside a character.
    ///
    /// # Errors
    /// [`DataError::UnknownToken`] for a token outside `0..vocab()`.
    pub fn decode(self, tokens: &[u32]) -> Result<Vec<u8>, DataError> {
        match self {
            Self::Gpt2 => r50k_base_singleton()
                .decode_bytes(tokens)
                .map_err(|error| DataError::UnknownToken { token: error.token, tokenizer: self }),
            Self::Bytes => tokens
                .iter()
                .map(|&token| u8::try_from(token).map_err(|_| DataError::UnknownToken { token, tokenizer: self }))
                .collect(),
        }
    }

    /// Length in bytes of a prefix of `text` whose tokens, followed by the tokens of the rest with anything after
    /// it, are the tokens of the whole; 0 if there is no such place.
    ///
    /// GPT-2 first cuts text into pieces by a regular expression. No piece goes from a character that is not white
    /// space to one that is, and the expression looks ahead but never back: the place before such white space is
    /// always the end of a piece, whatever comes before and after.
    pub(crate) fn safe_prefix(self, text: &str) -> usize {
        match self {
            Self::Bytes => text.len(),
            Self::Gpt2 => {
                let mut after_is_space = false;
                for (start, character) in text.char_indices().rev() {
                    if after_is_space && !character.is_whitespace() {
                        return start + character.len_utf8();
                    }
                    after_is_space = character.is_whitespace();
                }
                0
            }
        }
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpt2 => "gpt2",
            Self::Bytes => "bytes",
        })
    }
}

impl FromStr for Tokenizer {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        match name {
            "gpt2" => Ok(Self::Gpt2),
            "bytes" => Ok(Self::Bytes),
            other => Err(DataError::UnknownTokenizer(other.to_string())),
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
    fn names_are_read_and_written() {
        for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
            assert_eq!(tokenizer.to_string().parse::<Tokenizer>().unwrap(), tokenizer);
        }
        let message = "gpt3".parse::<Tokenizer>().unwrap_err().to_string();
        assert!(message.contains("gpt3") && message.contains("gpt2") && message.contains("bytes"), "{message}");
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
