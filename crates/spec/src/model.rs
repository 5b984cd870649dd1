//! The transformer to be trained: validated sizes of a GPT-2-style decoder.

use serde::Serialize;

/// A decoder-only transformer as GPT-2 has it: learned positions, pre-layer-norm blocks of causal self-attention
/// and a two-layer perceptron with tanh-GELU, a final layer norm and a language-model head.
///
/// Logical parameters, `[rows, columns]`, weights stored `[inputs, outputs]`:
///
/// | name | shape | decay |
/// |---|---|---|
/// | `embedding.table` | `[vocab, hidden]` | yes |
/// | `embedding.positions` | `[seq_len, hidden]` | yes |
/// | `block.I.norm1.gamma`, `.beta` | `[1, hidden]` | no |
/// | `block.I.qkv.weight` | `[hidden, 3 hidden]`; columns head-major: q, k, v of head 0, of head 1, ... | yes |
/// | `block.I.qkv.bias` | `[1, 3 hidden]` | no |
/// | `block.I.projection.weight`, `.bias` | `[hidden, hidden]`, `[1, hidden]` | yes, no |
/// | `block.I.norm2.gamma`, `.beta` | `[1, hidden]` | no |
/// | `block.I.up.weight`, `.bias` | `[hidden, ffn]`, `[1, ffn]` | yes, no |
/// | `block.I.down.weight`, `.bias` | `[ffn, hidden]`, `[1, hidden]` | yes, no |
/// | `final_norm.gamma`, `.beta` | `[1, hidden]` | no |
/// | `head.weight` (untied only) | `[vocab, hidden]` | yes |
///
/// The biases of the linear layers exist only with `biases`; norms always have both vectors.
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
    /// Width of the perceptron, usually `4 * hidden`.
    pub ffn: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Longest sequence: rows of the position table.
    pub seq_len: usize,
    /// Whether the head uses the embedding table.
    pub tied_head: bool,
    /// Whether linear layers have biases.
    pub biases: bool,
    /// Dropout rate after the embedding, on attention probabilities and on both block outputs; in [0, 1).
    pub dropout: f64,
    /// Added to the variance in layer norms.
    pub norm_epsilon: f64,
}

impl Model {
    /// Width of an attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Number of trained parameters, vocabulary padding not counted, a tied table once.
    pub fn parameters(&self) -> u64 {
        let (h, f, v) = (self.hidden as u64, self.ffn as u64, self.vocab as u64);
        let weights = 4 * h * h + 2 * h * f;
        let biases = if self.biases { 5 * h + f } else { 0 };
        let block = weights + biases + 4 * h;
        let tables = v * h * if self.tied_head { 1 } else { 2 } + self.seq_len as u64 * h;
        self.layers as u64 * block + tables + 2 * h
    }
}
