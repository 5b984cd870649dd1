//! A model as its TOML file and `--set key=value` say it, before validation.

mod block;
mod experts;
mod fields;
mod table;
#[cfg(test)]
mod tests;
mod told;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::block::{cap, factor};
use crate::choices::QkNorm;
use crate::toml_text::{self, check_name, check_size};
use crate::{
    Activation, BalanceScope, DropOrder, Model, Norm, NormPlace, Positions, ResidualOrder, RotaryRule, RouterScores,
    SpecError,
};

pub use table::BlockTable;

/// The largest sizes accepted. Even with all of them at once, the bytes of parameters, gradients and optimizer
/// states in f64 fit in 64 bits.
const MAX_LAYERS: usize = 1 << 13;
const MAX_HIDDEN: usize = 1 << 20;
/// Also of all experts of a block together.
const MAX_FFN: usize = 1 << 22;
const MAX_EXPERTS: usize = 1 << 12;
const MAX_HEADS: usize = 1 << 20;
/// Most that a number of a block is multiplied with or divided by.
const MAX_FACTOR: f64 = 1e4;
const MAX_HEAD_DIM: usize = 1 << 14;
const MAX_VOCAB: usize = 1 << 24;
const MAX_SEQ_LEN: usize = 1 << 24;
const MAX_PATCH_VALUES: usize = 1 << 20;

/// The fields of a model file. Only sizes without a usual value are required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// What rows of the embedding table are multiplied with where they become the residual stream; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_scale: Option<f64>,
    /// Soft cap of logits, `cap * tanh(logit / cap)`; 0, or left out: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_cap: Option<f64>,
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
    /// Columns of a value; as `head_dim` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<usize>,
    /// Latent attention: columns of the rows that make keys and values; 0, or left out: the stream makes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_value_latent: Option<usize>,
    /// Latent attention: columns of the rows that make queries; 0, or left out: the stream makes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_latent: Option<usize>,
    /// Latent attention: columns of a key that all heads share, the first ones; needed with `key_value_latent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_key: Option<usize>,
    /// Whether queries, keys and values have biases; as `biases` if left out, without them in latent attention.
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
    /// What attention scores are multiplied with beside `1 / sqrt(head_dim)`; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_scale: Option<f64>,
    /// Soft cap of attention scores, `cap * tanh(score / cap)`; 0, or left out: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_cap: Option<f64>,
    /// Norms of queries and keys: `layer` or `rms` of each head, `layer-all` or `rms-all` of all heads together, or `none`;
    /// none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_norm: Option<QkNorm>,
    /// How many columns of a head turn, the first ones; 0: all. Left out: all, in latent attention those of `shared_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_dim: Option<usize>,
    /// `none`, `linear`, `llama3` or `yarn`; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_scaling: Option<RotaryRule>,
    /// What scaled frequencies are divided by; needed with `rotary_scaling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_factor: Option<f64>,
    /// Of `llama3` and `yarn`: waves that fit less often into `rotary_positions` are scaled; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_low: Option<f64>,
    /// Of `llama3` and `yarn`: waves that fit more often into `rotary_positions` stay; if left out 4 of `llama3`, 32 of `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_high: Option<f64>,
    /// Of `llama3` and `yarn`: the length of sequences before; 8192 if left out.
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
    /// Experts of a block, among which a router chooses some for every token; 0, or left out: a perceptron instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<usize>,
    /// How many experts a token chooses; 2 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts_per_token: Option<usize>,
    /// Width of an expert; as `ffn` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert_ffn: Option<usize>,
    /// Of the blocks from `expert_first` on the last of every so many has experts; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert_every: Option<usize>,
    /// Blocks before this one have none; 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert_first: Option<usize>,
    /// Width of a perceptron for every token beside the experts; 0, or left out: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_ffn: Option<usize>,
    /// What a router makes of its logits, `softmax` or `sigmoid`; softmax if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterScores>,
    /// Groups of consecutive experts; 0 or 1, or left out: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_groups: Option<usize>,
    /// Groups that a token chooses, whose experts alone it may choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_top_groups: Option<usize>,
    /// Whether the weights of the chosen are divided by their sum; as soon as they are several if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_normalize: Option<bool>,
    /// What the weights of the chosen are multiplied with; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_scale: Option<f64>,
    /// Tokens over which a loss balances loads, `sequence`, `batch` or `none`; sequence if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<BalanceScope>,
    /// What that loss is multiplied with; 0.01 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance_loss: Option<f64>,
    /// What the loss of large router logits is multiplied with; 0, or left out: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_z_loss: Option<f64>,
    /// By how much the biases by which experts are chosen move a step; 0, or left out: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_bias_rate: Option<f64>,
    /// Places of an expert, as a multiple of what equal loads need; 0, or left out: it takes all tokens that choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// Consecutive tokens that share the places of an expert; 0, or left out: those of a sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_group: Option<usize>,
    /// Who has the places, `choice` or `score`; choice if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<DropOrder>,
    /// Blocks that differ from what the other fields say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockTable>,
}

impl ModelFile {
    /// Reads the text of a file; nothing but syntax and types is checked.
    ///
    /// # Errors
    /// Text that is no TOML, a missing or unknown field, a value of the wrong type.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        toml_text::read("a model", text)
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
        let (embedding_scale, logit_cap) = self.ends()?;
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
            embedding_scale,
            logit_cap,
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

impl ModelFile {
    /// The factor of embedded tokens and the cap of logits: models of patches have neither tokens nor logits.
    fn ends(&self) -> Result<(f64, Option<f64>), SpecError> {
        let scale = factor("embedding_scale", self.embedding_scale.unwrap_or(1.0), 1.0 / MAX_FACTOR)?;
        let cap = cap("logit_cap", self.logit_cap)?;
        let rule = "it is of tokens, and the model reads patches";
        match (self.patch_values, cap) {
            (Some(_), Some(cap)) => Err(SpecError::invalid("logit_cap", cap, rule, "leave it out")),
            (Some(_), None) if scale != 1.0 => {
                Err(SpecError::invalid("embedding_scale", scale, rule, "leave it out, or use 1"))
            }
            _ => Ok((scale, cap)),
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
