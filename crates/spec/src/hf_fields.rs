//! The fields of a Hugging Face configuration, taken one by one, so that what is left at the end is unknown.

use serde_json::{Map, Value};

use crate::SpecError;
use crate::hf_windows::FULL;

/// Fields that say how a model is stored, started, fed or asked, not what it computes from tokens.
const WITHOUT_EFFECT: [&str; 77] = [
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation",
    "_flash_attn_2_enabled",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "experts_implementation",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "n_ctx",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
];

/// The fields that are not read yet.
pub(crate) struct Fields {
    pub map: Map<String, Value>,
    family: String,
    /// Whether rotary frequencies may be scaled by YaRN, and by nothing else.
    pub knows_yarn: bool,
}

impl Fields {
    pub fn new(text: &str) -> Result<Self, SpecError> {
        let syntax = |reason: String| SpecError::Syntax {
            what: "a Hugging Face configuration",
            text: cut(text.lines().next().unwrap_or_default()),
            reason,
        };
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(Self { map, family: String::new(), knows_yarn: false }),
            Ok(_) => Err(syntax("it is one JSON object, as in config.json".to_owned())),
            Err(error) => Err(syntax(error.to_string())),
        }
    }

    /// The fields of an object inside, called `what`.
    pub fn inner(&self, map: Map<String, Value>, what: String) -> Self {
        Self { map, family: format!("{} with {what}", self.family), knows_yarn: false }
    }

    /// Whether the configuration has a field, even as null.
    pub fn names(&self, field: &str) -> bool {
        self.map.contains_key(field)
    }

    /// The value of a field; null is as good as none.
    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.map.remove(field).filter(|value| !value.is_null())
    }

    pub fn size(&mut self, field: &str) -> Result<Option<usize>, SpecError> {
        let read = |value: Value| {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            size.ok_or_else(|| wrong_type(field, &value, "a whole number, at least 0"))
        };
        self.take(field).map(read).transpose()
    }

    pub fn needed_size(&mut self, field: &str) -> Result<usize, SpecError> {
        self.size(field)?.ok_or_else(|| self.missing(field))
    }

    fn missing(&self, field: &str) -> SpecError {
        let rule = format!("a configuration of {} says it", self.family);
        SpecError::invalid(field, "none", rule, "give it")
    }

    /// A list of whole numbers; left out it is empty.
    pub fn sizes(&mut self, field: &str) -> Result<Vec<usize>, SpecError> {
        let Some(value) = self.take(field) else { return Ok(Vec::new()) };
        let size = |value: &Value| value.as_u64().and_then(|size| usize::try_from(size).ok());
        let sizes = value.as_array().and_then(|values| values.iter().map(size).collect());
        sizes.ok_or_else(|| wrong_type(field, &value, "a list of whole numbers"))
    }

    pub fn number(&mut self, field: &str) -> Result<Option<f64>, SpecError> {
        let read = |value: Value| value.as_f64().ok_or_else(|| wrong_type(field, &value, "a number"));
        self.take(field).map(read).transpose()
    }

    pub fn needed_number(&mut self, field: &str) -> Result<f64, SpecError> {
        self.number(field)?.ok_or_else(|| self.missing(field))
    }

    pub fn flag(&mut self, field: &str, default: bool) -> Result<bool, SpecError> {
        let read = |value: Value| value.as_bool().ok_or_else(|| wrong_type(field, &value, "true or false"));
        self.take(field).map_or(Ok(default), read)
    }

    pub fn text(&mut self, field: &str) -> Result<Option<String>, SpecError> {
        let text = match self.take(field) {
            None => None,
            Some(Value::String(text)) => Some(text),
            Some(value) => return Err(wrong_type(field, &value, "a text")),
        };
        if field == "model_type" {
            self.family = text.clone().unwrap_or_default();
        }
        Ok(text)
    }

    /// The last part of the path that the configuration was loaded from, or the family.
    pub fn name(&mut self) -> Result<String, SpecError> {
        let path = self.text("_name_or_path")?.unwrap_or_default();
        let last = path.rsplit('/').find(|part| !part.is_empty());
        Ok(last.map_or_else(|| self.family.clone(), str::to_owned))
    }

    pub fn check_flag(&mut self, field: &str, only: bool, rule: &str) -> Result<(), SpecError> {
        match self.flag(field, only)? {
            value if value == only => Ok(()),
            value => Err(unexpressed(field, value, rule)),
        }
    }

    /// The name of an activation function, one of those that are known.
    pub fn check_function(&mut self, field: &str, default: &str, known: &[&str]) -> Result<String, SpecError> {
        let name = self.text(field)?.unwrap_or_else(|| default.to_owned());
        if known.contains(&name.as_str()) {
            return Ok(name);
        }
        Err(unexpressed(field, cut(&name), format!("the activation function is {}", known.join(" or "))))
    }

    /// The one architecture of a family that predicts the next token.
    pub fn check_architecture(&mut self, only: &str) -> Result<(), SpecError> {
        let Some(value) = self.take("architectures") else { return Ok(()) };
        match value.as_array().map(Vec::as_slice) {
            Some([]) => Ok(()),
            Some([Value::String(name)]) if name == only => Ok(()),
            _ => Err(unexpressed("architectures", cut(&value.to_string()), format!("it is [\"{only}\"]"))),
        }
    }

    /// One rate for all of these fields, each with its default.
    pub fn one_dropout(&mut self, fields: &[(&str, f64)]) -> Result<f64, SpecError> {
        let mut rates = Vec::new();
        for (field, default) in fields {
            rates.push((field, self.number(field)?.unwrap_or(*default)));
        }
        let (first, rate) = rates[0];
        match rates.iter().find(|(_, other)| *other != rate) {
            None => Ok(rate),
            Some((field, other)) => {
                Err(unexpressed(field, other, format!("dropout has one rate, and {first} is {rate}")))
            }
        }
    }

    /// Refuses what is left, but for fields without effect and switches that are off.
    pub fn check_all_known(&mut self) -> Result<(), SpecError> {
        self.check_flag("is_encoder_decoder", false, "a model has a decoder only")?;
        self.check_flag("add_cross_attention", false, "there is no encoder to attend to")?;
        if let Some(types) = self.take("layer_types") {
            let all_full = types.as_array().is_some_and(|types| types.iter().all(|kind| kind == FULL));
            if !all_full {
                let rule = "every layer attends to all positions before";
                return Err(unexpressed("layer_types", cut(&types.to_string()), rule));
            }
        }
        let heads = self.take("pruned_heads");
        if let Some(heads) = heads.filter(|heads| heads.as_object().is_none_or(|heads| !heads.is_empty())) {
            return Err(unexpressed("pruned_heads", cut(&heads.to_string()), "no layer lacks heads"));
        }
        self.check_quantized()?;
        let unread = self.map.iter().filter(|(_, value)| !value.is_null());
        match unread.map(|(field, value)| (field.as_str(), value)).find(|(field, _)| !WITHOUT_EFFECT.contains(field)) {
            None => Ok(()),
            Some((field, value)) => {
                let rule = format!("no field of {} that is known here; it may change what is computed", self.family);
                let remedy = "leave it out if it does not";
                Err(SpecError::invalid(cut(field), cut(&value.to_string()), rule, remedy))
            }
        }
    }
}

impl Fields {
    /// Refuses weights that are stored in fewer bits.
    fn check_quantized(&self) -> Result<(), SpecError> {
        let Some(value) = self.map.get("quantization_config").filter(|value| !value.is_null()) else { return Ok(()) };
        let method = value["quant_method"].as_str().map_or(String::new(), |method| format!(" by {}", cut(method)));
        let rule = format!("the weights are quantized{method}, and weights of f32, f16 and bf16 are read");
        let remedy = "take the model that was quantized";
        Err(SpecError::invalid("quantization_config", cut(&value.to_string()), rule, remedy))
    }
}

/// A field whose value asks for something else than a model computes.
pub(crate) fn unexpressed(field: &str, value: impl ToString, rule: impl Into<String>) -> SpecError {
    let remedy = "the configuration is of a model that cannot be expressed exactly";
    SpecError::invalid(field, value, rule, remedy)
}

pub(crate) fn wrong_type(field: &str, value: &Value, wanted: &str) -> SpecError {
    SpecError::invalid(field, cut(&value.to_string()), format!("it is {wanted}"), "write it as transformers does")
}

/// Enough of a text to recognise it.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
