//! A model as its TOML file and `--set key=value` say it, before validation.

mod block;
mod table;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::choices::QkNorm;
use crate::toml_text::{self, check_name, check_size};
use crate::{Activation, Block, Classic, Model, Norm, NormPlace, Positions, ResidualOrder, RotaryRule, SpecError};

pub use table::BlockTable;

/// The largest sizes accepted. Even with all of them at once, the bytes of parameters, gradients and optimizer
/// states in f64 fit in 64 bits.
const MAX_LAYERS: usize = 1 << 13;
const MAX_HIDDEN: usize = 1 << 20;
const MAX_FFN: usize = 1 << 22;
const MAX_HEADS: usize = 1 << 20;
/// Most that a number of a block is multiplied with or divided by.
const MAX_FACTOR: f64 = 1e4;
const MAX_HEAD_DIM: usize = 1 << 14;
const MAX_VOCAB: usize = 1 << 24;
const MAX_SEQ_LEN: usize = 1 << 24;
const MAX_PATCH_VALUES: usize = 1 << 20;

/// The fields of a model file. Only sizes without a usual value are required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// What the model is called in reports.
    pub name: String,
    /// Number of blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Attention heads; divides `hidden`.
    pub heads: usize,
    /// Heads of keys and values; as many as `heads` if left out.
    pub kv_heads: Option<usize>,
    /// Width of the perceptron; `4 * hidden` if left out.
    pub ffn: Option<usize>,
    /// Number of token ids; needed unless the input is patches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocab: Option<usize>,
    /// Longest sequence, in tokens.
    pub seq_len: usize,
    /// Numbers in a patch; left out, the input is tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_values: Option<usize>,
    /// Whether the head uses the embedding table; true if left out and the input is tokens.
    pub tied_head: Option<bool>,
    /// Whether linear layers have biases; true if left out.
    #[serde(default = "yes")]
    pub biases: bool,
    /// Dropout rate in [0, 1); 0 if left out.
    #[serde(default)]
    pub dropout: f64,
    /// `layer` or `rms`; `layer` if left out.
    #[serde(default = "layer_norm")]
    pub norm: Norm,
    /// Added to the variance or mean square in norms; 1e-5 if left out.
    #[serde(default = "default_norm_epsilon")]
    pub norm_epsilon: f64,
    /// `learned`, `rotary` or `none`; `learned` if left out.
    #[serde(default = "learned")]
    pub positions: Positions,
    /// Base of rotary frequencies; 10000 if left out.
    pub rotary_base: Option<f64>,
    /// The function of the perceptron, by the name of an [`Activation`]; `gelu` if left out.
    #[serde(default = "gelu")]
    pub activation: Activation,
    /// Whether a position attends only to itself and those before it; true if left out and the input is tokens.
    pub causal: Option<bool>,
    /// Columns of a head; `hidden / heads` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Whether queries, keys and values have biases; as `biases` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qkv_bias: Option<bool>,
    /// Whether the projection of attention has a bias; as `biases` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projection_bias: Option<bool>,
    /// Whether the first layer of the perceptron has a bias; as `biases` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_bias: Option<bool>,
    /// Whether the second layer of the perceptron has a bias; as `biases` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_bias: Option<bool>,
    /// How many positions a position attends to at most, itself and those right before it; 0, or left out: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Soft cap of attention scores, `cap * tanh(score / cap)`; 0, or left out: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_cap: Option<f64>,
    /// Norm of every head's query and key, `layer`, `rms` or `none`; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_norm: Option<QkNorm>,
    /// How many columns of a head turn, the first ones; 0, or left out: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_dim: Option<usize>,
    /// `none`, `linear` or `llama3`; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_scaling: Option<RotaryRule>,
    /// What scaled frequencies are divided by; needed with `rotary_scaling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_factor: Option<f64>,
    /// Of `llama3`: waves that fit less often into `rotary_positions` are scaled; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_low: Option<f64>,
    /// Of `llama3`: waves that fit more often into `rotary_positions` stay; 4 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_high: Option<f64>,
    /// Of `llama3`: the length of sequences before; 8192 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_positions: Option<usize>,
    /// `before`, `after` or `both`; before if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_place: Option<NormPlace>,
    /// Whether norms multiply with 1 + gamma; false if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_offset: Option<bool>,
    /// `sequential` or `parallel`; sequential if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual: Option<ResidualOrder>,
    /// What attention and perceptron give is multiplied with; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_scale: Option<f64>,
    /// Blocks that differ from what the other fields say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockTable>,
}

impl ModelFile {
    /// Every field but `blocks`, in the order of a file.
    pub const FIELDS: [&str; 36] = [
        "name",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "ffn",
        "vocab",
        "seq_len",
        "patch_values",
        "tied_head",
        "biases",
        "dropout",
        "norm",
        "norm_epsilon",
        "positions",
        "rotary_base",
        "activation",
        "causal",
        "head_dim",
        "qkv_bias",
        "projection_bias",
        "up_bias",
        "down_bias",
        "window",
        "attention_cap",
        "qk_norm",
        "rotary_dim",
        "rotary_scaling",
        "rotary_factor",
        "rotary_low",
        "rotary_high",
        "rotary_positions",
        "norm_place",
        "norm_offset",
        "residual",
        "residual_scale",
    ];

    /// Whether [`ModelFile::set`] knows a key: a field, or `blocks.FROM.FIELD` or `blocks.FROM/EVERY.FIELD`.
    pub fn knows(key: &str) -> bool {
        Self::FIELDS.contains(&key) || key.starts_with(table::PREFIX)
    }

    /// The file of a model: fields that every file had from the beginning, and the others where they say something.
    pub fn of(model: &Model) -> Self {
        let Block { attention, .. } = *model.blocks.first();
        let mut file = Self::from(model.classic());
        if model.patch_values.is_some() {
            file.biases = model.patch_biases;
        }
        file.norm_offset = model.final_norm.offset.then_some(true);
        // Where some blocks have other heads, theirs are not as wide as the stream says either.
        let apart = attention.width() != model.hidden || model.blocks.kinds().len() > 1;
        file.head_dim = apart.then_some(attention.head_dim);
        // Heads of an odd number of columns turn in part only.
        let part = attention.rotary.filter(|rotary| rotary.columns != attention.head_dim);
        file.rotary_dim = part.map(|rotary| rotary.columns);
        file.tell_blocks(model);
        file
    }

    /// Reads the text of a file; nothing but syntax and types is checked.
    ///
    /// # Errors
    /// Text that is no TOML, a missing or unknown field, a value of the wrong type.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        toml_text::read("a model", text)
    }

    /// Replaces one field, or, as `blocks.FROM.FIELD` and `blocks.FROM/EVERY.FIELD`, that of some blocks. `hidden` without a stated `ffn` rescales the perceptron with it.
    ///
    /// # Errors
    /// An unknown field, or a value of the wrong type.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), SpecError> {
        match field {
            "name" => self.name = value.to_owned(),
            "layers" => self.layers = parse_size(field, value)?,
            "hidden" => self.hidden = parse_size(field, value)?,
            "heads" => self.heads = parse_size(field, value)?,
            "kv_heads" => self.kv_heads = Some(parse_size(field, value)?),
            "ffn" => self.ffn = Some(parse_size(field, value)?),
            "vocab" => self.vocab = Some(parse_size(field, value)?),
            "seq_len" => self.seq_len = parse_size(field, value)?,
            "patch_values" => self.patch_values = Some(parse_size(field, value)?),
            "tied_head" => self.tied_head = Some(parse(field, value, "it must be true or false")?),
            "biases" => self.biases = parse(field, value, "it must be true or false")?,
            "dropout" => self.dropout = parse(field, value, "it must be a number")?,
            "norm" => self.norm = value.trim().parse()?,
            "norm_epsilon" => self.norm_epsilon = parse(field, value, "it must be a number")?,
            "positions" => self.positions = value.trim().parse()?,
            "rotary_base" => self.rotary_base = Some(parse(field, value, "it must be a number")?),
            "activation" => self.activation = value.trim().parse()?,
            "causal" => self.causal = Some(parse(field, value, "it must be true or false")?),
            "head_dim" => self.head_dim = Some(parse_size(field, value)?),
            "qkv_bias" => self.qkv_bias = Some(parse(field, value, "it must be true or false")?),
            "projection_bias" => self.projection_bias = Some(parse(field, value, "it must be true or false")?),
            "up_bias" => self.up_bias = Some(parse(field, value, "it must be true or false")?),
            "down_bias" => self.down_bias = Some(parse(field, value, "it must be true or false")?),
            "window" => self.window = Some(parse_size(field, value)?),
            "attention_cap" => self.attention_cap = Some(parse(field, value, "it must be a number")?),
            "qk_norm" => self.qk_norm = Some(value.trim().parse()?),
            "rotary_dim" => self.rotary_dim = Some(parse_size(field, value)?),
            "rotary_scaling" => self.rotary_scaling = Some(value.trim().parse()?),
            "rotary_factor" => self.rotary_factor = Some(parse(field, value, "it must be a number")?),
            "rotary_low" => self.rotary_low = Some(parse(field, value, "it must be a number")?),
            "rotary_high" => self.rotary_high = Some(parse(field, value, "it must be a number")?),
            "rotary_positions" => self.rotary_positions = Some(parse_size(field, value)?),
            "norm_place" => self.norm_place = Some(value.trim().parse()?),
            "norm_offset" => self.norm_offset = Some(parse(field, value, "it must be true or false")?),
            "residual" => self.residual = Some(value.trim().parse()?),
            "residual_scale" => self.residual_scale = Some(parse(field, value, "it must be a number")?),
            _ if field.starts_with(table::PREFIX) => self.blocks.push(BlockTable::from_key(field, value)?),
            _ => {
                let known = Self::FIELDS.map(str::to_owned).to_vec();
                return Err(SpecError::Unknown { what: "model field", name: field.to_owned(), known });
            }
        }
        Ok(())
    }

    /// The model, if every value keeps its rule.
    ///
    /// # Errors
    /// Names the first field that breaks its rule, the rule, and what would be possible.
    pub fn validate(self) -> Result<Model, SpecError> {
        check_name(&self.name)?;
        check_size("layers", self.layers, MAX_LAYERS)?;
        check_size("hidden", self.hidden, MAX_HIDDEN)?;
        let blocks = self.described_blocks()?;
        check_size("seq_len", self.seq_len, MAX_SEQ_LEN)?;
        let (vocab, tied_head) = self.input()?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(SpecError::invalid("dropout", self.dropout, "a rate lies in [0, 1)", "use e.g. 0.1, or 0"));
        }
        let norm = self.normalization()?;
        Ok(Model {
            name: self.name,
            hidden: self.hidden,
            vocab,
            seq_len: self.seq_len,
            patch_values: self.patch_values,
            patch_biases: self.biases && self.patch_values.is_some(),
            tied_head,
            dropout: self.dropout,
            learned_positions: self.positions == Positions::Learned,
            final_norm: norm,
            blocks,
        })
    }

    /// Vocabulary and whether the head is tied: tokens have the one and may have the other, patches neither.
    fn input(&self) -> Result<(usize, bool), SpecError> {
        match (self.vocab, self.patch_values) {
            (Some(vocab), None) => {
                check_size("vocab", vocab, MAX_VOCAB)?;
                Ok((vocab, self.tied_head.unwrap_or(true)))
            }
            (None, Some(values)) => {
                check_size("patch_values", values, MAX_PATCH_VALUES)?;
                if self.tied_head == Some(true) {
                    let rule = "a model of patches has no table of tokens that its head could use";
                    return Err(SpecError::invalid("tied_head", true, rule, "leave it out"));
                }
                Ok((0, false))
            }
            (Some(vocab), Some(_)) => {
                let rule = "a model reads either tokens (vocab) or patches (patch_values)";
                Err(SpecError::invalid("vocab", vocab, rule, "leave one of them out"))
            }
            (None, None) => {
                let rule = "a model of tokens has a vocabulary, one of patches has patch_values";
                Err(SpecError::invalid("vocab", "none", rule, "give one of them"))
            }
        }
    }
}

/// Nothing is said: sizes are 0 and refused, all else is as if left out.
impl Default for ModelFile {
    fn default() -> Self {
        Self {
            name: String::new(),
            layers: 0,
            hidden: 0,
            heads: 0,
            kv_heads: None,
            ffn: None,
            vocab: None,
            seq_len: 0,
            patch_values: None,
            tied_head: None,
            biases: yes(),
            dropout: 0.0,
            norm: layer_norm(),
            norm_epsilon: default_norm_epsilon(),
            positions: learned(),
            rotary_base: None,
            activation: gelu(),
            causal: None,
            head_dim: None,
            qkv_bias: None,
            projection_bias: None,
            up_bias: None,
            down_bias: None,
            window: None,
            attention_cap: None,
            qk_norm: None,
            rotary_dim: None,
            rotary_scaling: None,
            rotary_factor: None,
            rotary_low: None,
            rotary_high: None,
            rotary_positions: None,
            norm_place: None,
            norm_offset: None,
            residual: None,
            residual_scale: None,
            blocks: Vec::new(),
        }
    }
}

/// Every field that a flat description has.
impl From<Classic> for ModelFile {
    fn from(classic: Classic) -> Self {
        Self {
            name: classic.name,
            layers: classic.layers,
            hidden: classic.hidden,
            heads: classic.heads,
            kv_heads: Some(classic.kv_heads),
            ffn: Some(classic.ffn),
            vocab: classic.patch_values.is_none().then_some(classic.vocab),
            seq_len: classic.seq_len,
            patch_values: classic.patch_values,
            tied_head: Some(classic.tied_head),
            biases: classic.biases,
            dropout: classic.dropout,
            norm: classic.norm,
            norm_epsilon: classic.norm_epsilon,
            positions: classic.positions,
            rotary_base: Some(classic.rotary_base),
            activation: classic.activation,
            causal: Some(classic.causal),
            ..Self::default()
        }
    }
}

impl Model {
    /// Reads a model file (see [`ModelFile`]), replaces fields by `overrides` (field, value) in their order, and
    /// validates the result.
    ///
    /// # Errors
    /// Those of [`ModelFile::from_toml`], [`ModelFile::set`] and [`ModelFile::validate`].
    pub fn from_toml(text: &str, overrides: &[(String, String)]) -> Result<Self, SpecError> {
        let mut file = ModelFile::from_toml(text)?;
        overrides.iter().try_for_each(|(field, value)| file.set(field, value))?;
        file.validate()
    }
}

fn yes() -> bool {
    true
}

fn layer_norm() -> Norm {
    Norm::Layer
}

fn learned() -> Positions {
    Positions::Learned
}

fn gelu() -> Activation {
    Activation::Gelu
}

fn default_norm_epsilon() -> f64 {
    1e-5
}

/// A whole number, with TOML's underscores allowed: `50_257`.
fn parse_size(field: &str, value: &str) -> Result<usize, SpecError> {
    parse(field, &value.replace('_', ""), "it must be a whole number")
}

fn parse<T: std::str::FromStr>(field: &str, value: &str, rule: &str) -> Result<T, SpecError> {
    let remedy = format!("write `model.{field}`=...");
    value.trim().parse().map_err(|_| SpecError::invalid(field, format!("'{value}'"), rule, remedy))
}
