//! The files beside a `tokenizer.json`: names of special tokens, flags of texts, the chat template.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quadrille_files::Document;
use serde_json::{Map, Value};

use crate::DataError;

/// Size of some kilobytes.
const CONFIGURATION: Document = Document::new("the configuration of a tokenizer", 1 << 26);
const TEMPLATE: Document = Document::new("a chat template", 1 << 24);
/// File of the chat template alone.
pub(super) const TEMPLATE_FILE: &str = "chat_template.jinja";
/// Files that name special tokens, the one that counts first. Of both only the first has flags and a chat template.
const FILES: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];
/// Lists of special tokens without a usual role, by their names in versions 4 and 5 of the transformers library.
const LISTS: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// `tokenizer_config.json` and `special_tokens_map.json`; empty without these files.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenizerSettings {
    /// Path of the `tokenizer_config.json`, for messages.
    pub path: PathBuf,
    config: Map<String, Value>,
    map: Map<String, Value>,
}

impl TokenizerSettings {
    /// Reads the other files of the folder of the tokenizer at `path`.
    ///
    /// # Errors
    /// [`DataError::File`]; [`DataError::TokenizerFile`] for a file that is no JSON object.
    pub fn beside(path: &Path) -> Result<Self, DataError> {
        let [config, map] = FILES.map(|name| object(&path.with_file_name(name)));
        Ok(Self { path: path.with_file_name(FILES[0]), config: config?, map: map? })
    }

    /// Text of a special token, by its role, as `bos_token`. `Some(None)`: the files have null for it.
    pub fn token(&self, role: &str) -> Option<Option<&str>> {
        let value = self.config.get(role).or_else(|| self.map.get(role))?;
        Some(content(value))
    }

    /// Text of every special token that has a role, by the role: as `bos_token`, or by a name of the model's own.
    pub fn roles(&self) -> BTreeMap<&str, &str> {
        let fields = self.map.iter().chain(&self.config);
        let usual = fields.filter(|(role, _)| role.ends_with("_token") && !role.starts_with("add_"));
        let own = self.lists().filter_map(Value::as_object).flatten();
        own.chain(usual).filter_map(|(role, value)| Some((role.as_str(), content(value)?))).collect()
    }

    /// Text of all special tokens that the files name.
    pub fn special_tokens(&self) -> Vec<&str> {
        let listed = self.lists().filter_map(Value::as_array).flatten();
        let added = self.config.get("added_tokens_decoder").and_then(Value::as_object);
        let added = added.into_iter().flat_map(Map::values).filter(|token| token["special"] == true);
        self.roles().into_values().chain(listed.chain(added).filter_map(content)).collect()
    }

    /// Lists of special tokens without a usual role, or maps of them by roles of the model's own.
    fn lists(&self) -> impl Iterator<Item = &Value> {
        LISTS.iter().flat_map(|list| [self.map.get(*list), self.config.get(*list)]).flatten()
    }

    /// True if a flag as `add_bos_token` is set.
    pub fn flag(&self, name: &str) -> bool {
        self.config.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The chat template, with its file: that of `chat_template.jinja`, else of `chat_template` in `tokenizer_config.json`, of
    /// several the one named `default`.
    ///
    /// # Errors
    /// [`DataError::NoChatTemplate`]; [`DataError::File`].
    pub fn chat_template(&self) -> Result<(PathBuf, String), DataError> {
        let file = self.path.with_file_name(TEMPLATE_FILE);
        match TEMPLATE.bytes(&file) {
            Ok(bytes) => {
                let reason = |_| "it is not UTF-8".to_owned();
                let text = String::from_utf8(bytes).map_err(reason);
                return match text {
                    Ok(text) => Ok((file, text)),
                    Err(reason) => Err(DataError::ChatTemplate { path: file, reason }),
                };
            }
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.into()),
        }
        let template = match self.config.get("chat_template") {
            Some(Value::String(template)) => Some(template.as_str()),
            Some(Value::Array(named)) => {
                let is_default = |entry: &&Value| entry["name"] == "default";
                named.iter().find(is_default).and_then(|entry| entry["template"].as_str())
            }
            Some(Value::Object(named)) => named.get("default").and_then(Value::as_str),
            _ => None,
        };
        match template {
            Some(template) => Ok((self.path.clone(), template.to_owned())),
            None => Err(DataError::NoChatTemplate(self.path.clone())),
        }
    }
}

/// A token as a string, or as an object with its text.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// The JSON object of a file; empty without the file.
fn object(path: &Path) -> Result<Map<String, Value>, DataError> {
    let bytes = match CONFIGURATION.bytes(path) {
        Err(error) if error.is_missing() => return Ok(Map::new()),
        bytes => bytes?,
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| DataError::TokenizerFile { path: path.to_path_buf(), reason: error.to_string() })
}
