//! Special tokens of a model that is exported: those of its tokenizer, or of the configuration that it was imported with.

use std::path::Path;

use quadrille_files::Document;
use quadrille_spec::{USUAL_BEGINNINGS, USUAL_ENDS};
use serde_json::Value;

use crate::companions::COMPANION;
use crate::{HuggingFaceError, Origin};

/// Size of some kilobytes.
const CONFIGURATION: Document = Document::new("the configuration of a tokenizer", 1 << 26);
/// Files that name special tokens, the one that counts first.
const NAMES: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];
/// Fields of a configuration with the ids of special tokens.
pub const SPECIAL_TOKEN_FIELDS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];
/// GPT-2's `<|endoftext|>`, of the built-in tokenizer.
const END_OF_TEXT: u64 = 50_256;

/// Ids of the tokens that begin and end texts, and pad them, by [`SpecialTokens::FIELDS`]; null for a token that is missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SpecialTokens {
    ids: [Value; 3],
    /// True if the tokenizer is known: tokens that it lacks become null in a configuration.
    is_known: bool,
}

impl SpecialTokens {
    /// Fields of a configuration.
    pub const FIELDS: [&str; 3] = SPECIAL_TOKEN_FIELDS;

    /// Tokens of the configuration that the model was imported with; those that it does not have are of the tokenizer among the
    /// companions, or else of the built-in one of this name, whose tokens the run of the model has read. None of that
    /// configuration count where a run has read tokens of another tokenizer since.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn of(
        companions: Option<&Path>,
        vocabulary: Option<&str>,
        origin: Option<&Origin>,
    ) -> Result<Self, HuggingFaceError> {
        let origin = origin.filter(|origin| !origin.other_tokenizer);
        let built_in = |ids| Self { ids, is_known: true };
        let named = companions.map(of_files).transpose()?.flatten();
        let mut tokens = named.unwrap_or_else(|| match vocabulary {
            Some("gpt2") => built_in([END_OF_TEXT.into(), END_OF_TEXT.into(), Value::Null]),
            Some("bytes") => built_in([Value::Null, 0.into(), Value::Null]),
            // Another one, of which there is no file.
            Some(_) => built_in([const { Value::Null }; 3]),
            None => Self::default(),
        });
        for (field, token) in Self::FIELDS.iter().zip(&mut tokens.ids) {
            let imported = origin.and_then(|origin| origin.config.get(field)).filter(|token| !token.is_null());
            *token = imported.cloned().unwrap_or_else(|| token.take());
        }
        Ok(tokens)
    }

    /// Writes the ids into a configuration; what lies outside the vocabulary is left out.
    pub fn write(&self, config: &mut Value, vocab: usize) {
        let is_inside = |id: &Value| id.as_u64().is_some_and(|id| id < vocab as u64);
        for (field, ids) in Self::FIELDS.iter().zip(&self.ids) {
            let is_written = match ids {
                Value::Array(several) => !several.is_empty() && several.iter().all(is_inside),
                one => is_inside(one),
            };
            if is_written {
                config[*field] = ids.clone();
            } else if let Some(usual) = config.get_mut(*field).filter(|_| self.is_known) {
                *usual = Value::Null;
            }
        }
    }
}

/// The tokens that a tokenizer's files name, or those of usual names, by which text is read, too; `None` without a
/// `tokenizer.json`.
fn of_files(folder: &Path) -> Result<Option<SpecialTokens>, HuggingFaceError> {
    let Some(tokenizer) = json(&COMPANION, &folder.join("tokenizer.json"))? else { return Ok(None) };
    let files = NAMES.map(|name| json(&CONFIGURATION, &folder.join(name)));
    let [config, map] = files;
    let files = [config?.unwrap_or_default(), map?.unwrap_or_default()];
    let named = |role: &str| files.iter().find_map(|file| file.get(role));
    let ids = SpecialTokens::FIELDS.map(|field| {
        let role = field.trim_end_matches("_id");
        let value = named(role);
        if let Some(text) = value.and_then(|value| value.as_str().or_else(|| value["content"].as_str())) {
            return id(&tokenizer, text).map_or(Value::Null, Value::from);
        }
        let usual: &[&str] = match role {
            "eos_token" => &USUAL_ENDS,
            "bos_token" if value.is_none() => &USUAL_BEGINNINGS,
            _ => &[],
        };
        usual.iter().find_map(|text| id(&tokenizer, text)).map_or(Value::Null, Value::from)
    });
    Ok(Some(SpecialTokens { ids, is_known: true }))
}

/// The id of a token by its text, in the content of a `tokenizer.json`.
fn id(tokenizer: &Value, text: &str) -> Option<u64> {
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten().find(|token| token["content"] == text);
    if let Some(token) = added {
        return token["id"].as_u64();
    }
    match &tokenizer["model"]["vocab"] {
        Value::Object(ids) => ids.get(text)?.as_u64(),
        // Pieces with their scores, in the order of ids.
        Value::Array(pieces) => pieces.iter().position(|piece| piece[0] == text).map(|id| id as u64),
        _ => None,
    }
}

/// The content of a file; `None` without the file.
fn json(document: &Document, path: &Path) -> Result<Option<Value>, HuggingFaceError> {
    match document.bytes(path) {
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.into()),
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|error| HuggingFaceError::damaged(path, error.to_string()))
        }
    }
}
