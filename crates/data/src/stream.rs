//! Tokens of a stream in bounded memory, equal to the tokens of the whole.

use std::io::Read;
use std::path::Path;
use std::str::from_utf8;

use crate::{DataError, Tokenizer};

/// Bytes read at a time from a source file.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// A stretch of text without a safe place to cut may have this many chunks.
const MAX_CHUNKS: usize = 64;

/// Reads `input` to its end and hands its tokens to `sink`, some at a time; returns the bytes read. Holds about
/// `chunk` bytes, more only where the text has no place to cut. `path` is for messages.
pub(crate) fn encode_stream(
    tokenizer: Tokenizer,
    path: &Path,
    mut input: impl Read,
    chunk: usize,
    mut sink: impl FnMut(&[u32]) -> Result<(), DataError>,
) -> Result<u64, DataError> {
    let mut buffer = Vec::new();
    let mut offset = 0; // of the buffer's first byte in the file
    loop {
        // Reading as much again as is held keeps the work linear where there is no place to cut for long.
        let wanted = chunk.max(buffer.len());
        let read = input.by_ref().take(wanted as u64).read_to_end(&mut buffer).map_err(DataError::io("read", path))?;
        let at_end = read < wanted;
        let done = match tokenizer {
            Tokenizer::Bytes => {
                sink(&buffer.iter().map(|&byte| u32::from(byte)).collect::<Vec<_>>())?;
                buffer.len()
            }
            Tokenizer::Gpt2 => {
                let text = complete_characters(path, &buffer, offset, at_end)?;
                let text = if at_end { text } else { &text[..tokenizer.safe_prefix(text)] };
                let limit = chunk * MAX_CHUNKS;
                if text.is_empty() && buffer.len() > limit {
                    return Err(DataError::Unsplittable { path: path.to_path_buf(), offset, limit });
                }
                sink(&tokenizer.encode(text).map_err(|error| in_file(error, path, offset))?)?;
                text.len()
            }
        };
        buffer.drain(..done);
        offset += done as u64;
        if at_end {
            return Ok(offset);
        }
    }
}

/// The text in `buffer`, less an incomplete character at its end if more bytes will follow.
fn complete_characters<'a>(path: &Path, buffer: &'a [u8], offset: u64, at_end: bool) -> Result<&'a str, DataError> {
    let invalid = |valid: usize| DataError::NotUtf8 { path: path.to_path_buf(), offset: offset + valid as u64 };
    match from_utf8(buffer) {
        Err(error) if error.error_len().is_none() && !at_end => {
            let valid = error.valid_up_to();
            from_utf8(&buffer[..valid]).map_err(|_| invalid(valid))
        }
        result => result.map_err(|error| invalid(error.valid_up_to())),
    }
}

/// An error of the tokenizer, told in terms of the file that is read.
fn in_file(error: DataError, path: &Path, offset: u64) -> DataError {
    match error {
        DataError::NotEncodable { .. } => {
            DataError::Unsplittable { path: path.to_path_buf(), offset, limit: 1_000_000 }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(tokenizer: Tokenizer, bytes: &[u8], chunk: usize) -> Result<Vec<u32>, DataError> {
        let mut tokens = Vec::new();
        let read = encode_stream(tokenizer, Path::new("some.txt"), bytes, chunk, |part| {
            tokens.extend_from_slice(part);
            Ok(())
        })?;
        assert_eq!(read, bytes.len() as u64);
        Ok(tokens)
    }

    proptest! {
        /// Text made of what the splitting expression treats differently, cut everywhere.
        #[test]
        fn chunks_give_the_tokens_of_the_whole(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    " ", "  ", "\n", "\n\n", "\t", "\u{a0}", "\u{3000}", "\r\n", "a", "the", "The", "'s", "'", "'ll",
                    "12", "½", "漢字", "é", "e\u{301}", "🦀", ".", "...", "!?", "\0", "\u{200b}",
                ]), 0..60),
            chunk in 4_usize..40,
        ) {
            let text = parts.concat();
            for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
                let tokens = stream(tokenizer, text.as_bytes(), chunk).unwrap();
                prop_assert_eq!(tokens, tokenizer.encode(&text).unwrap(), "{}", tokenizer);
            }
        }

        #[test]
        fn invalid_bytes_are_reported_where_they_are(before in "[a-zé ]{0,80}", chunk in 4_usize..40) {
            for bad in [&b"\xff"[..], b"\xc3 ", b"\xe6\xbc", b"\xed\xa0\x80"] {
                let bytes = [before.as_bytes(), bad].concat();
                match stream(Tokenizer::Gpt2, &bytes, chunk) {
                    Err(DataError::NotUtf8 { offset, .. }) => prop_assert_eq!(offset, before.len() as u64),
                    other => prop_assert!(false, "{:?}", other),
                }
                prop_assert_eq!(stream(Tokenizer::Bytes, &bytes, chunk).unwrap().len(), bytes.len());
            }
        }
    }

    #[test]
    fn a_stretch_without_a_word_boundary_is_limited() {
        let text = format!("ab {}", "x".repeat(1000));
        let error = stream(Tokenizer::Gpt2, text.as_bytes(), 4).unwrap_err();
        assert!(matches!(error, DataError::Unsplittable { offset: 2, limit: 256, .. }), "{error}");
        assert!(stream(Tokenizer::Gpt2, text.as_bytes(), 100).is_ok());
        let spaces = " ".repeat(3_000_000) + "x";
        let error = stream(Tokenizer::Gpt2, spaces.as_bytes(), CHUNK_BYTES).unwrap_err();
        assert!(matches!(error, DataError::Unsplittable { offset: 0, .. }), "{error}");
    }
}
