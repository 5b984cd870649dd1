//! Pieces of a text file in bounded memory, whose tokens together are the tokens of the whole.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::from_utf8;

use super::Piece;
use crate::tokenizer::Cut;
use crate::{DataError, Tokenizer};

/// Bytes of a piece: enough that its tokens take longer than its way to another core.
pub(super) const PIECE_BYTES: usize = 1 << 18;
/// A stretch of text without a safe place to cut may have this many pieces.
const MOST_PIECES: usize = 64;
/// The same for a `tokenizer.json`: it may need a hundred bytes of memory for each byte of text.
const MOST_PIECES_OF_JSON: usize = 16;

/// The pieces of one text.
pub(super) struct Pieces<R> {
    tokenizer: Tokenizer,
    path: PathBuf,
    input: R,
    /// True if special tokens in the text are tokens.
    parse_special: bool,
    /// Bytes of a piece, more only where the text has no place to cut.
    size: usize,
    buffer: Vec<u8>,
    /// The context of the next piece.
    context: Vec<u8>,
    /// Where the buffer begins in the file.
    offset: u64,
    /// Whether the last piece was given out.
    ended: bool,
}

impl<R: Read> Pieces<R> {
    /// `path` is for messages.
    pub fn new(tokenizer: &Tokenizer, path: &Path, input: R, size: usize, parse_special: bool) -> Self {
        let tokenizer = tokenizer.clone();
        let path = path.to_path_buf();
        let buffer = Vec::new();
        let context = Vec::new();
        Self { tokenizer, path, input, parse_special, size, buffer, context, offset: 0, ended: false }
    }

    /// Bytes given out so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; the last one may be empty.
    pub fn next(&mut self) -> Result<Option<Piece>, DataError> {
        while !self.ended {
            // Reading as much again as is held keeps the work linear where there is no place to cut for long.
            let wanted = self.size.max(self.buffer.len());
            let input = self.input.by_ref().take(wanted as u64);
            let read = { input }.read_to_end(&mut self.buffer).map_err(DataError::io("read", &self.path))?;
            self.ended = read < wanted;
            let Some(Cut { place, context }) = self.cut()? else { continue };
            let rest = self.buffer.split_off(place);
            let bytes = std::mem::replace(&mut self.buffer, rest);
            let context = std::mem::replace(&mut self.context, bytes[place - context..].to_vec());
            let offset = self.offset;
            self.offset += place as u64;
            return Ok(Some(Piece { context, bytes, offset, ends: self.ended }));
        }
        Ok(None)
    }

    /// Where the buffer is cut; `None` if more of the text must be read first.
    fn cut(&self) -> Result<Option<Cut>, DataError> {
        let whole = |place: usize| Some(Cut { place, context: 0 });
        if matches!(self.tokenizer, Tokenizer::Bytes) {
            return Ok(whole(self.buffer.len()));
        }
        let text = self.complete_characters()?;
        let cut = if self.ended { whole(text.len()) } else { self.tokenizer.cut(text, self.parse_special)? };
        let most = if matches!(self.tokenizer, Tokenizer::Json(_)) { MOST_PIECES_OF_JSON } else { MOST_PIECES };
        let limit = self.size * most;
        if cut.is_none() && self.buffer.len() >= limit {
            let path = self.path.clone();
            let tokenizer = self.tokenizer.to_string();
            return Err(DataError::Unsplittable { path, offset: self.offset, limit, tokenizer });
        }
        Ok(cut)
    }

    /// The text in the buffer, less an incomplete character at its end if more bytes will follow.
    fn complete_characters(&self) -> Result<&str, DataError> {
        let invalid = |valid: usize| DataError::NotUtf8 { path: self.path.clone(), offset: self.offset + valid as u64 };
        match from_utf8(&self.buffer) {
            Err(error) if error.error_len().is_none() && !self.ended => {
                let valid = error.valid_up_to();
                from_utf8(&self.buffer[..valid]).map_err(|_| invalid(valid))
            }
            result => result.map_err(|error| invalid(error.valid_up_to())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Reading, SpecialTokens};

    fn tokens(tokenizer: &Tokenizer, bytes: &[u8], size: usize) -> Result<Vec<u32>, DataError> {
        tokens_as(tokenizer, bytes, size, false)
    }

    fn tokens_as(tokenizer: &Tokenizer, bytes: &[u8], size: usize, parsed: bool) -> Result<Vec<u32>, DataError> {
        let special = SpecialTokens { parsed, ..SpecialTokens::default() };
        let reading = Reading { special, ..Reading::new(tokenizer.clone()) };
        let mut pieces = Pieces::new(tokenizer, Path::new("some.txt"), bytes, size, parsed);
        let mut tokens = Vec::new();
        let mut ended = false;
        while let Some(piece) = pieces.next()? {
            assert!(!ended, "a piece after the last");
            ended = piece.ends;
            tokens.extend(super::super::encode::encode(&reading, Path::new("some.txt"), &piece)?);
        }
        assert!(ended && pieces.offset() == bytes.len() as u64);
        Ok(tokens)
    }

    proptest! {
        /// Text made of what the splitting expression treats differently, cut everywhere.
        #[test]
        fn pieces_give_the_tokens_of_the_whole(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    " ", "  ", "\n", "\n\n", "\t", "\u{a0}", "\u{3000}", "\r\n", "a", "the", "The", "'s", "'", "'ll",
                    "12", "½", "漢字", "é", "e\u{301}", "🦀", ".", "...", "!?", "\0", "\u{200b}",
                    "<|endoftext|>",
                ]), 0..60),
            size in 4_usize..40,
            parsed in any::<bool>(),
        ) {
            let text = parts.concat();
            for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
                let found = tokens_as(&tokenizer, text.as_bytes(), size, parsed).unwrap();
                prop_assert_eq!(found, tokenizer.encode_as(&text, parsed).unwrap(), "{}", tokenizer);
            }
        }

        #[test]
        fn invalid_bytes_are_reported_where_they_are(before in "[a-zé ]{0,80}", size in 4_usize..40) {
            for bad in [&b"\xff"[..], b"\xc3 ", b"\xe6\xbc", b"\xed\xa0\x80"] {
                let bytes = [before.as_bytes(), bad].concat();
                match tokens(&Tokenizer::Gpt2, &bytes, size) {
                    Err(DataError::NotUtf8 { offset, .. }) => prop_assert_eq!(offset, before.len() as u64),
                    other => prop_assert!(false, "{:?}", other),
                }
                prop_assert_eq!(tokens(&Tokenizer::Bytes, &bytes, size).unwrap().len(), bytes.len());
            }
        }
    }

    #[test]
    fn a_stretch_without_a_word_boundary_is_limited() {
        let text = format!("ab {}", "x".repeat(1000));
        let error = tokens(&Tokenizer::Gpt2, text.as_bytes(), 4).unwrap_err();
        assert!(matches!(error, DataError::Unsplittable { offset: 2, limit: 256, .. }), "{error}");
        assert!(tokens(&Tokenizer::Gpt2, text.as_bytes(), 100).is_ok());
        let spaces = " ".repeat(3_000_000) + "x";
        let error = tokens(&Tokenizer::Gpt2, spaces.as_bytes(), PIECE_BYTES).unwrap_err();
        assert!(matches!(error, DataError::Unsplittable { offset: 0, .. }), "{error}");
    }
}
