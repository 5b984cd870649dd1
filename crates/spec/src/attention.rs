//! Self-attention as a block describes it.

use serde::Serialize;

use crate::Normalization;

/// Self-attention of a block: `softmax(q k^T / sqrt(head_dim)) v`, for each head.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Attention {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`. Fewer than `heads`: grouped-query attention.
    pub kv_heads: usize,
    /// Columns of a head; often `hidden / heads`.
    pub head_dim: usize,
    /// Whether a position attends only to itself and those before it.
    pub causal: bool,
    /// How many positions a position attends to at most, itself and those right before it; only where attention is causal.
    pub window: Option<usize>,
    /// The soft cap of scores, `cap * tanh(score / cap)`.
    pub cap: Option<f64>,
    /// Queries and keys turned by their positions; `None`: this block does not look at positions.
    pub rotary: Option<Rotary>,
    /// The norm of every head's query and of every key, before they turn; each has one gamma for all heads.
    pub qk_norm: Option<Normalization>,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether the projection of the heads' results has a bias.
    pub projection_bias: bool,
}

/// Rotary positions (RoPE): pairs of numbers of a head turn by angles that grow with the position, halves of a head paired.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rotary {
    /// Base of the frequencies: pair `i` turns by `position * base^(-2 i / head_dim)`.
    pub base: f64,
}

impl Attention {
    /// Columns of all heads of queries, and of the result.
    pub fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of the product that makes queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}
