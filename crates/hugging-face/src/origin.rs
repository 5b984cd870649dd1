//! What a checkpoint keeps about the folder that it was imported from, so that an export gives it back.

use std::collections::BTreeMap;

use quadrille_spec::{Model, SpecError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::training::computed;
use crate::{Family, HuggingFaceError, StoredType, config};

/// The configuration, names and types of a folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The whole `config.json`.
    pub config: Value,
    /// Fields of the model that were replaced, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<(String, String)>,
    /// Whether names begin as those of a model with a head, e.g. `transformer.`.
    pub prefix: bool,
    /// Whether a tied head had a tensor of its own, equal to the embedding.
    #[serde(default)]
    pub tied_head_stored: bool,
    /// True if a run has read tokens of another tokenizer since: the special tokens of the configuration are not the model's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub other_tokenizer: bool,
    /// The type of most tensors.
    pub dtype: StoredType,
    /// The types of the others, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_dtypes: BTreeMap<String, StoredType>,
}

impl Origin {
    /// Reads what [`Origin::to_value`] wrote.
    ///
    /// # Errors
    /// A value that is something else.
    pub fn from_value(value: &Value) -> Result<Self, HuggingFaceError> {
        Self::deserialize(value).map_err(|error| HuggingFaceError::Origin { reason: error.to_string() })
    }

    /// The record as a checkpoint keeps it.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The model that the configuration describes.
    ///
    /// # Errors
    /// Those of [`Model::from_hugging_face`].
    pub fn model(&self) -> Result<Model, SpecError> {
        Model::from_hugging_face(&self.config.to_string(), &self.set)
    }

    /// The configuration that says `model` without replaced fields: the folder's own, or that with the replacements of
    /// the import written into it. Name and what is of training only aside. `None`: neither says it.
    pub(crate) fn config_of(&self, model: &Model) -> Option<Value> {
        let ours = computed(model);
        let same = |read: Result<Model, SpecError>| read.is_ok_and(|read| computed(&read) == ours);
        let says = |config: &Value| same(Model::from_hugging_face(&config.to_string(), &[]));
        if says(&self.config) {
            return Some(self.config.clone());
        }
        if !same(self.model()) {
            return None;
        }
        [false, true].into_iter().filter_map(|defaults| config::with_fields(&self.config, model, defaults)).find(says)
    }

    /// The family that the configuration names.
    pub(crate) fn family(&self) -> Option<Family> {
        Family::of(self.config.get("model_type")?.as_str()?)
    }

    /// The type of a tensor.
    pub(crate) fn dtype_of(&self, tensor: &str) -> StoredType {
        self.other_dtypes.get(tensor).copied().unwrap_or(self.dtype)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}
