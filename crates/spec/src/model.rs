//! The transformer to be trained: validated sizes and kinds of layers.

use serde::Serialize;

use crate::{Activation, Norm, Positions};

/// A transformer of pre-norm blocks of self-attention and a perceptron, a final norm and a head. What a block is made
/// of is chosen by fields, so that one description covers GPT (layer norm, learned positions, GELU, causal), Llama (RMS
/// norm, rotary positions, SwiGLU, grouped keys and values, untied head) and the vision transformer (patches instead of
/// tokens, no causal mask).
///
/// Logical parameters (`Model::all_parameters`), `[rows, columns]`, weights stored `[inputs, outputs]`; `d = hidden / heads`:
///
/// | name | shape | decay |
/// |---|---|---|
/// | `embedding.table` (tokens) | `[vocab, hidden]` | yes |
/// | `embedding.weight`, `.bias` (patches) | `[values, hidden]`, `[1, hidden]` | yes, no |
/// | `embedding.positions` (learned) | `[seq_len, hidden]` | yes |
/// | `block.I.norm1.gamma`, `.beta` (layer norm) | `[1, hidden]` | no |
/// | `block.I.qkv.weight` | `[hidden, (heads + 2 kv_heads) d]`; group-major: the queries of group 0 (the heads that share a key), its key, its value, then group 1, ... | yes |
/// | `block.I.qkv.bias` | `[1, (heads + 2 kv_heads) d]` | no |
/// | `block.I.projection.weight`, `.bias` | `[hidden, hidden]`, `[1, hidden]` | yes, no |
/// | `block.I.norm2.gamma`, `.beta` | `[1, hidden]` | no |
/// | `block.I.up.weight`, `.bias` | `[hidden, up_width]`, `[1, up_width]`; SwiGLU: columns gate 0, up 0, gate 1, up 1, ... | yes, no |
/// | `block.I.down.weight`, `.bias` | `[ffn, hidden]`, `[1, hidden]` | yes, no |
/// | `final_norm.gamma`, `.beta` | `[1, hidden]` | no |
/// | `head.weight` (tokens, untied only) | `[vocab, hidden]` | yes |
/// | `head.weight`, `.bias` (patches) | `[hidden, values]`, `[1, values]` | yes, no |
///
/// The biases of the linear layers exist only with `biases`; layer norms have both vectors, RMS norms no beta.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// What the model is called in reports.
    pub name: String,
    /// Number of blocks, at least 1.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Attention heads; divides `hidden`.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`. Fewer than `heads`: grouped-query attention.
    pub kv_heads: usize,
    /// Width of the perceptron, usually `4 * hidden`.
    pub ffn: usize,
    /// Number of token ids; 0 where the input is patches.
    #[serde(skip_serializing_if = "is_zero")]
    pub vocab: usize,
    /// Longest sequence: rows of the position table.
    pub seq_len: usize,
    /// Numbers in a patch of e.g. a weather field, which the model reads and of which it predicts as many (mean squared
    /// error); `None`: it reads tokens and predicts the next (cross-entropy).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_values: Option<usize>,
    /// Whether the head uses the embedding table.
    pub tied_head: bool,
    /// Whether linear layers have biases.
    pub biases: bool,
    /// Dropout rate after the embedding, on attention probabilities and on both block outputs; in [0, 1).
    pub dropout: f64,
    /// The kind of norms.
    pub norm: Norm,
    /// Added to the variance (layer norm) or to the mean square (RMS norm).
    pub norm_epsilon: f64,
    /// How attention knows positions.
    pub positions: Positions,
    /// Base of the rotary frequencies: pair `i` of a head turns by `position * base^(-2 i / head_dim)`.
    pub rotary_base: f64,
    /// The function between the two layers of the perceptron.
    pub activation: Activation,
    /// Whether a position attends only to itself and those before it.
    pub causal: bool,
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

impl Model {
    /// A GPT-2 of these sizes, to be changed by struct update: perceptron of `4 * hidden`, tied head, biases, no dropout.
    /// Unlike a file's, the sizes are not checked.
    pub fn gpt(layers: usize, hidden: usize, heads: usize, vocab: usize, seq_len: usize) -> Self {
        Self {
            name: "gpt".to_owned(),
            layers,
            hidden,
            heads,
            kv_heads: heads,
            ffn: 4 * hidden,
            vocab,
            seq_len,
            patch_values: None,
            tied_head: true,
            biases: true,
            dropout: 0.0,
            norm: Norm::Layer,
            norm_epsilon: 1e-5,
            positions: Positions::Learned,
            rotary_base: 10_000.0,
            activation: Activation::Gelu,
            causal: true,
        }
    }

    /// Width of an attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// What a sequence is made of, for people: tokens or patches.
    pub fn sequence_unit(&self) -> &'static str {
        if self.patch_values.is_some() { "patches" } else { "tokens" }
    }

    /// Columns of the product that makes queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim()
    }

    /// Columns of the perceptron's first product: with SwiGLU a gate for each.
    pub fn up_width(&self) -> usize {
        self.ffn * self.activation.inputs()
    }
}
