//! Tokens that a tokenizer's own rule puts around a text.

use tokenizers::{Encoding, Token};

use super::settings::TokenizerSettings;

/// Tokens around a text: those of the post-processor of a `tokenizer.json`, and those of the flags `add_bos_token` and
/// `add_eos_token` of its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affixes {
    /// Tokens before the text.
    pub begin: Vec<u32>,
    /// Tokens after it.
    pub end: Vec<u32>,
}

impl Affixes {
    /// No tokens.
    pub const NONE: &Self = &Self { begin: Vec::new(), end: Vec::new() };

    /// True if a text stays as it is.
    pub fn is_empty(&self) -> bool {
        self.begin.is_empty() && self.end.is_empty()
    }

    /// Tokens after a document that gets the end token `end` in any case.
    pub(crate) fn after(&self, end: Option<u32>) -> &[u32] {
        match self.end.split_last() {
            Some((last, before)) if Some(*last) == end => before,
            _ => &self.end,
        }
    }
}

/// Affixes by the post-processor of a tokenizer, which is applied to one token. As in version 5 of the transformers library the
/// post-processor decides; a flag of the `tokenizer_config.json` adds a token that it leaves out, as the tokenizers of Llama and
/// Gemma do in version 4.
pub(super) fn affixes(
    tokenizer: &tokenizers::Tokenizer,
    settings: &TokenizerSettings,
    begin: Option<u32>,
    end: Option<u32>,
) -> tokenizers::Result<Affixes> {
    let text = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
    let processed = tokenizer.post_process(text, None, true)?;
    let ids = processed.get_ids();
    let special = processed.get_special_tokens_mask();
    let first = special.iter().position(|mask| *mask == 0).unwrap_or(0);
    let last = special.iter().rposition(|mask| *mask == 0).map_or(ids.len(), |last| last + 1);
    let mut affixes = Affixes { begin: ids[..first].to_vec(), end: ids[last..].to_vec() };
    if let Some(token) = begin.filter(|token| settings.flag("add_bos_token") && !affixes.begin.contains(token)) {
        affixes.begin.insert(0, token);
    }
    if let Some(token) = end.filter(|token| settings.flag("add_eos_token") && !affixes.end.contains(token)) {
        affixes.end.push(token);
    }
    Ok(affixes)
}
