//! Tokenizers of Hugging Face's format, `tokenizer.json`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use quadrille_files::{Document, is_lfs_pointer};
use quadrille_panics as panics;
use quadrille_spec::{USUAL_BEGINNINGS, USUAL_ENDS};
use tokenizers::AddedToken;

use super::affixes::{Affixes, affixes};
use super::chat::ChatTemplate;
use super::settings::TokenizerSettings;
use super::{Cut, check, ends_of_words};
use crate::{DataError, Vocabulary, VocabularyName};

const BEGIN: &str = "bos_token";

/// Bytes on both sides of a place in a text that decide whether the text may be cut there. Tokenizers look no further than
/// to the ends of words, or at white space and punctuation around them; merges of pairs settle within some tokens.
const CONTEXT_BYTES: usize = 512;
/// Bytes of a second context, from where tokens must be the same; odd, so that runs of one character end at other tokens.
const LONG_CONTEXT_BYTES: usize = 863;
/// Ends of words that are tried, from the end of a text on, and then other places.
const TRIALS: usize = 64;

/// Tokenizers with 200 thousand tokens have some 20 million bytes.
const TOKENIZER: Document = Document::new("a tokenizer", 1 << 29);

/// A `tokenizer.json`, read.
pub struct JsonTokenizer {
    path: PathBuf,
    /// Special tokens that a text spells out are text to it; other added tokens are tokens.
    tokenizer: tokenizers::Tokenizer,
    /// The tokenizer to which special tokens are tokens, made when it is needed.
    parsing: OnceLock<tokenizers::Tokenizer>,
    /// Chat template in the same folder, read when it is needed.
    chat: OnceLock<ChatTemplate>,
    settings: TokenizerSettings,
    vocabulary: Vocabulary,
    /// The token that begins a text by its role or usual name.
    bos: Option<u32>,
    affixes: Affixes,
    /// Every token, in order: ids may leave holes.
    tokens: Vec<u32>,
}

impl JsonTokenizer {
    /// Reads the file. The tokens that end a document and begin a text are the `eos_token` and `bos_token` of the
    /// `tokenizer_config.json`, or of the `special_tokens_map.json`, of its folder, or else tokens with one of the usual names
    /// (`<|endoftext|>`, `</s>`, ...).
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
        let settings = TokenizerSettings::beside(path)?;
        let token = |role: &str, usual: &[&str], needed: bool| -> Result<Option<u32>, DataError> {
            let id = |name: &str| contained(path, || tokenizer.token_to_id(name));
            match settings.token(role) {
                Some(None) if role == BEGIN => Ok(None),
                Some(Some(name)) => match id(name)? {
                    None if needed => {
                        let file = settings.path.file_name().unwrap_or_default().display().to_string();
                        Err(failed(format!("it has no token {name:?}, the {role} of its {file}")))
                    }
                    id => Ok(id),
                },
                _ => usual.iter().find_map(|name| id(name).transpose()).transpose(),
            }
        };
        let end = token("eos_token", &USUAL_ENDS, true)?;
        let begin = token(BEGIN, &USUAL_BEGINNINGS, settings.flag("add_bos_token"))?;
        let affixes = contained(path, || affixes(&tokenizer, &settings, begin, end))?;
        let affixes = affixes.map_err(|error| failed(format!("its post-processor cannot be used: {error}")))?;
        let vocabulary = Vocabulary { name: VocabularyName::of_json(&bytes), size, end };
        Ok(Self {
            path: path.to_path_buf(),
            tokenizer,
            parsing: OnceLock::new(),
            chat: OnceLock::new(),
            settings,
            vocabulary,
            bos: begin,
            affixes,
            tokens,
        })
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

    pub(super) fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that begins a text, for empty prompts.
    pub(super) fn begin(&self) -> Option<u32> {
        self.affixes.begin.last().copied().or(self.bos)
    }

    pub(super) fn affixes(&self) -> &Affixes {
        &self.affixes
    }

    pub(super) fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, DataError> {
        let tokenizer = if parse_special { self.parsing()? } else { &self.tokenizer };
        let encoded = contained(&self.path, || tokenizer.encode_fast(text, false))?;
        let encoding = encoded.map_err(|error| self.failed("encode", error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokenizer that reads special tokens in text. Those that only the other files of its folder name are special, too, as in the
    /// transformers library.
    fn parsing(&self) -> Result<&tokenizers::Tokenizer, DataError> {
        if let Some(parsing) = self.parsing.get() {
            return Ok(parsing);
        }
        let made = contained(&self.path, || {
            let mut parsing = self.tokenizer.clone();
            parsing.set_encode_special_tokens(false);
            let known = self.settings.special_tokens().into_iter().filter(|name| parsing.token_to_id(name).is_some());
            let tokens: Vec<AddedToken> = known.map(|name| AddedToken::from(name, true)).collect();
            // Flags of a token that the file itself adds stay.
            let listed = self.tokenizer.get_added_tokens_decoder();
            let is_new = |token: &AddedToken| !listed.values().any(|other| other.content == token.content);
            let added = parsing.add_special_tokens(tokens.into_iter().filter(is_new).collect::<Vec<_>>());
            added.map(|_| parsing)
        })?;
        let made = made.map_err(|error| self.failed("parse special tokens", error))?;
        Ok(self.parsing.get_or_init(|| made))
    }

    /// Chat template of the tokenizer's folder.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::of`].
    pub(super) fn chat_template(&self) -> Result<&ChatTemplate, DataError> {
        match self.chat.get() {
            Some(template) => Ok(template),
            None => {
                let template = ChatTemplate::of(&self.settings)?;
                Ok(self.chat.get_or_init(|| template))
            }
        }
    }

    /// Ids of the special tokens that are parsed, in order. They depend on the other files of its folder, too.
    pub(super) fn parsed_ids(&self) -> Result<Vec<u32>, DataError> {
        let added = self.parsing()?.get_added_tokens_decoder();
        let mut ids: Vec<u32> = added.into_iter().filter(|(_, token)| token.special).map(|(id, _)| id).collect();
        ids.sort_unstable();
        Ok(ids)
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
    pub(super) fn cut(&self, text: &str, parse_special: bool) -> Result<Option<Cut>, DataError> {
        // What follows a place must be known far enough to judge it.
        let known = floor(text, text.len().saturating_sub(CONTEXT_BYTES));
        let characters = text[..known].char_indices().rev().map(|(place, _)| place).filter(|place| *place > 0);
        for place in ends_of_words(&text[..known]).take(TRIALS).chain(characters.take(TRIALS)) {
            if let Some(context) = self.context(text, place, parse_special)? {
                return Ok(Some(Cut { place, context }));
            }
        }
        Ok(None)
    }

    /// The length of the context behind which the text from `place` on has its tokens; `None` if it may not be cut there.
    fn context(&self, text: &str, place: usize, parse_special: bool) -> Result<Option<usize>, DataError> {
        let end = floor(text, (place + CONTEXT_BYTES).min(text.len()));
        let behind = |bytes: usize| -> Result<Option<(usize, Vec<u32>)>, DataError> {
            let start = floor(text, place.saturating_sub(bytes));
            let before = self.encode(&text[start..place], parse_special)?;
            let all = self.encode(&text[start..end], parse_special)?;
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
    // Text is text, wherever it is from: it cannot end documents by spelling their end, unless that is asked for.
    tokenizer.set_encode_special_tokens(true);
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None)?;
    Ok(tokenizer)
}

/// The last place of a character in `text` that is at most `place`.
fn floor(text: &str, place: usize) -> usize {
    (0..=place).rev().find(|&place| text.is_char_boundary(place)).unwrap_or(0)
}

impl fmt::Debug for JsonTokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonTokenizer").field("path", &self.path).field("vocabulary", &self.vocabulary).finish()
    }
}
