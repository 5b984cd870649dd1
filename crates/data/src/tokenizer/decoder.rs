//! Text from tokens as they arrive, in whole characters.

use std::str::from_utf8;

use super::Tokenizer;
use crate::DataError;

/// What a character that bytes do not make is shown as.
const REPLACEMENT: char = '\u{fffd}';
/// Tokens of a `tokenizer.json` that are held back for want of a complete character before they are given up.
const LONGEST_WAIT: usize = 16;

/// Turns a stream of tokens into text: a character is returned with the token that completes it. Bytes that are not
/// UTF-8 become U+FFFD. One for each sequence.
#[derive(Debug, Clone)]
pub struct Decoder {
    tokenizer: Tokenizer,
    /// Bytes of an incomplete character, at most three.
    bytes: Vec<u8>,
    /// Of a `tokenizer.json`: tokens whose text was returned last, on which the text of the next may depend, and after
    /// them those that wait.
    tokens: Vec<u32>,
    /// How many of these were returned.
    returned: usize,
}

impl Decoder {
    /// A decoder at the beginning of a text.
    pub fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, bytes: Vec::new(), tokens: Vec::new(), returned: 0 }
    }

    /// The text that `token` completes; empty inside a character.
    ///
    /// # Errors
    /// [`DataError::UnknownToken`] for a token that the tokenizer does not have.
    pub fn push(&mut self, token: u32) -> Result<String, DataError> {
        if matches!(self.tokenizer, Tokenizer::Json(_)) {
            // An unknown token would be left out in silence.
            if !self.tokenizer.has(token) {
                self.tokenizer.decode(&[token])?;
            }
            self.tokens.push(token);
            return self.complete(self.tokens.len() - self.returned > LONGEST_WAIT);
        }
        self.bytes.extend(self.tokenizer.decode(&[token])?);
        Ok(self.complete_bytes(false))
    }

    /// What is left at the end of the stream: characters that were never completed.
    ///
    /// # Errors
    /// Those of [`Self::push`].
    pub fn finish(mut self) -> Result<String, DataError> {
        match self.tokenizer {
            Tokenizer::Json(_) => self.complete(true),
            _ => Ok(self.complete_bytes(true)),
        }
    }

    /// Takes the complete characters out of `bytes`, with `all` also what can never become one.
    fn complete_bytes(&mut self, all: bool) -> String {
        let mut text = String::new();
        loop {
            match from_utf8(&self.bytes) {
                Ok(rest) => {
                    text += rest;
                    self.bytes.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text += &String::from_utf8_lossy(&self.bytes[..valid]);
                    let bad = match error.error_len() {
                        Some(length) => length,
                        None if all => self.bytes.len() - valid,
                        None => {
                            self.bytes.drain(..valid);
                            return text;
                        }
                    };
                    text.push(REPLACEMENT);
                    self.bytes.drain(..valid + bad);
                }
            }
        }
    }

    /// The text that the waiting tokens add to that of those before them, unless it ends in an incomplete character and
    /// may still become complete. Texts of both are compared, since a token's text depends on its neighbours: many
    /// tokenizers leave out the space before the first word.
    fn complete(&mut self, all: bool) -> Result<String, DataError> {
        let text = |tokens: &[u32]| -> Result<String, DataError> {
            Ok(String::from_utf8_lossy(&self.tokenizer.decode(tokens)?).into_owned())
        };
        let before = text(&self.tokens[..self.returned])?;
        let whole = text(&self.tokens)?;
        if whole.ends_with(REPLACEMENT) && !all {
            return Ok(String::new());
        }
        let added = whole.strip_prefix(before.as_str()).map(str::to_owned);
        self.tokens.drain(..self.returned);
        self.returned = self.tokens.len();
        // Where a token changed what was returned, its own text is the best that is left.
        added.map_or_else(|| Ok(String::from_utf8_lossy(&self.tokenizer.decode(&self.tokens)?).into_owned()), Ok)
    }
}
