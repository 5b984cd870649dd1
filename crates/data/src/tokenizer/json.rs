//! Tokenizers of Hugging Face's format, `tokenizer.json`.

use std::fmt;
use std::path::{Path, PathBuf};

use quadrille_files::{Document, is_lfs_pointer};
use quadrille_panics as panics;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::{Cut, check, ends_of_words};
use crate::{DataError, Vocabulary, VocabularyName};

/// What the token that ends a document is called where no `tokenizer_config.json` says it.
const USUAL_ENDS: [&str; 7] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|end▁of▁sentence|>", "[EOS]"];

/// Bytes on both sides of a place in a text that decide whether the text may be cut there. Tokenizers look no further than
/// to the ends of words, or at white space and punctuation around them; merges of pairs settle within some tokens.
const CONTEXT_BYTES: usize = 512;
/// Bytes of a second context, from where tokens must be the same; odd, so that runs of one character end at other tokens.
const LONG_CONTEXT_BYTES: usize = 863;
/// Ends of words that are tried, from the end of a text on, and then other places.
const TRIALS: usize = 64;

/// Tokenizers with 200 thousand tokens have some 20 million bytes.
const TOKENIZER: Document = Document::new("a tokenizer", 1 << 29);
/// Of some kilobytes.
const CONFIGURATION: Document = Document::new("the configuration of a tokenizer", 1 << 26);

/// A `tokenizer.json`, read.
pub struct JsonTokenizer {
    path: PathBuf,
    tokenizer: tokenizers::Tokenizer,
    vocabulary: Vocabulary,
    /// Every token, in order: ids may leave holes.
    tokens: Vec<u32>,
}

impl JsonTokenizer {
    /// Reads the file. The token that ends a document is the `eos_token` of the `tokenizer_config.json` beside it, or
    /// else a token with one of the usual names (`<|endoftext|>`, `</s>`, ...).
    ///
    /// # Errors
    /// [`DataError::File`]; [`DataError::TokenizerFile`] for what is no tokenizer, or for an `eos_token` that it lacks.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let bytes = TOKENIZER.bytes(path)?;
        let failed = |reason: String| DataError::TokenizerFile { path: path.to_path_buf(), reason };
        if is_lfs_pointer(&bytes) {
            return Err(failed("it is a pointer of Git LFS, not the file; fetch that with `git lfs pull`".to_owned()));
        }
        check::check(&bytes).map_err(failed)?;
        let tokenizer = contained(path, || parse(&bytes))?.map_err(|error| failed(error.to_string()))?;
        let mut tokens: Vec<u32> = contained(path, || tokenizer.get_vocab(true))?.into_values().collect();
        tokens.sort_unstable();
        tokens.dedup();
        let size = tokens.last().map_or(0, |&largest| largest as usize + 1);
        if size == 0 || size >= 1 << 31 {
            return Err(failed(format!("it has a vocabulary of {size}, and 1 to 2147483647 tokens are read")));
        }
        let id = |name: &str| contained(path, || tokenizer.token_to_id(name));
        let end = match configured_end(path)? {
            Some(name) => Some(id(&name)?.ok_or_else(|| {
                failed(format!("it has no token {name:?}, the eos_token of the tokenizer_config.json beside it"))
            })?),
            None => USUAL_ENDS.iter().find_map(|name| id(name).transpose()).transpose()?,
        };
        let vocabulary = Vocabulary { name: VocabularyName::Json(xxh3_128(&bytes)), size, end };
        Ok(Self { path: path.to_path_buf(), tokenizer, vocabulary, tokens })
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn vocabulary(&self) -> Vocabulary {
        self.vocabulary
    }

    /// Whether there is a token of this id.
    pub(super) fn has(&self, token: u32) -> bool {
        self.tokens.binary_search(&token).is_ok()
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let encoded = contained(&self.path, || self.tokenizer.encode_fast(text, false))?;
        let encoding = encoded.map_err(|error| self.failed("encode", error))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub(super) fn decode(&self, tokens: &[u32]) -> Result<String, DataError> {
        let decoded = contained(&self.path, || self.tokenizer.decode(tokens, false))?;
        decoded.map_err(|error| self.failed("decode", error))
    }

    fn failed(&self, what: &str, error: tokenizers::Error) -> DataError {
        DataError::TokenizerFile { path: self.path.clone(), reason: format!("it cannot {what}: {error}") }
    }

    /// See [`super::Tokenizer::cut`]. How a `tokenizer.json` cuts text is not known, and many put a space before it: a place is
    /// taken where tokens end whatever follows, and what follows has the same tokens behind a short context and a long one.
    pub(super) fn cut(&self, text: &str) -> Result<Option<Cut>, DataError> {
        // What follows a place must be known far enough to judge it.
        let known = floor(text, text.len().saturating_sub(CONTEXT_BYTES));
        let characters = text[..known].char_indices().rev().map(|(place, _)| place).filter(|place| *place > 0);
        for place in ends_of_words(&text[..known]).take(TRIALS).chain(characters.take(TRIALS)) {
            if let Some(context) = self.context(text, place)? {
                return Ok(Some(Cut { place, context }));
            }
        }
        Ok(None)
    }

    /// The length of the context behind which the text from `place` on has its tokens; `None` if it may not be cut there.
    fn context(&self, text: &str, place: usize) -> Result<Option<usize>, DataError> {
        let end = floor(text, (place + CONTEXT_BYTES).min(text.len()));
        let behind = |bytes: usize| -> Result<Option<(usize, Vec<u32>)>, DataError> {
            let start = floor(text, place.saturating_sub(bytes));
            let before = self.encode(&text[start..place])?;
            let all = self.encode(&text[start..end])?;
            Ok(all.strip_prefix(&before[..]).map(|after| (place - start, after.to_vec())))
        };
        let Some((context, after)) = behind(CONTEXT_BYTES)? else { return Ok(None) };
        let is_settled = behind(LONG_CONTEXT_BYTES)?.is_some_and(|(_, far)| far == after);
        Ok(is_settled.then_some(context))
    }
}

/// Runs code of the library, which panics at some files that keep to the format and still do not work.
fn contained<R>(path: &Path, body: impl FnOnce() -> R) -> Result<R, DataError> {
    panics::catch(body).map_err(|panic| {
        let reason = format!("the library that reads such files gives up {panic}");
        DataError::TokenizerFile { path: path.to_path_buf(), reason }
    })
}

/// The tokenizer in a file, for text as it is.
fn parse(bytes: &[u8]) -> tokenizers::Result<tokenizers::Tokenizer> {
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(bytes)?;
    // Text is text, wherever it is from: it cannot end documents by spelling their end.
    tokenizer.set_encode_special_tokens(true);
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None)?;
    Ok(tokenizer)
}

/// The last place of a character in `text` that is at most `place`.
fn floor(text: &str, place: usize) -> usize {
    (0..=place).rev().find(|&place| text.is_char_boundary(place)).unwrap_or(0)
}

/// The `eos_token` of the `tokenizer_config.json` beside `path`.
fn configured_end(path: &Path) -> Result<Option<String>, DataError> {
    let path = path.with_file_name("tokenizer_config.json");
    let bytes = match CONFIGURATION.bytes(&path) {
        Err(error) if error.is_missing() => return Ok(None),
        bytes => bytes?,
    };
    let config: Value = serde_json::from_slice(&bytes)
        .map_err(|error| DataError::TokenizerFile { path: path.clone(), reason: error.to_string() })?;
    let end = &config["eos_token"];
    Ok(end.as_str().or_else(|| end["content"].as_str()).map(str::to_owned))
}

impl fmt::Debug for JsonTokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonTokenizer").field("path", &self.path).field("vocabulary", &self.vocabulary).finish()
    }
}
