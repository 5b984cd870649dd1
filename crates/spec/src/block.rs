//! A block of a transformer: attention and a perceptron around the residual stream.

use serde::Serialize;

use crate::{Activation, Attention, Norm, NormPlace, ResidualOrder};

/// What a block is made of. Everything that two blocks of a model can differ in is here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    /// Between tokens.
    pub attention: Attention,
    /// On each token alone.
    pub perceptron: Perceptron,
    /// Of the residual stream.
    pub norm: Normalization,
    /// Before or after attention and perceptron.
    pub norm_place: NormPlace,
    /// How both are added to the stream.
    pub residual: Residual,
}

impl Block {
    /// Elements of the weights that tokens are multiplied with, in a model whose residual stream has `hidden` columns.
    pub fn product_weights(&self, hidden: usize) -> usize {
        let Self { attention, perceptron, .. } = self;
        hidden * (attention.qkv_width() + attention.width() + perceptron.up_width() + perceptron.width)
    }
}

/// How attention and perceptron are added to the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Residual {
    /// One after the other, or beside each other.
    pub order: ResidualOrder,
    /// What they give is multiplied with this; above 0.
    pub scale: f64,
}

impl Residual {
    /// GPT's: one after the other, as they are.
    pub const PLAIN: Self = Self { order: ResidualOrder::Sequential, scale: 1.0 };
}

/// Two linear layers with a function between them: `down(f(up(x)))`, or, gated, `down(f(gate(x)) * up(x))`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Perceptron {
    /// Columns between the two layers, usually `4 * hidden`.
    pub width: usize,
    /// The function, and whether it is gated.
    pub activation: Activation,
    /// Whether the first layer has a bias.
    pub up_bias: bool,
    /// Whether the second layer has a bias.
    pub down_bias: bool,
}

impl Perceptron {
    /// Columns of the first product: with gates one more for each.
    pub fn up_width(&self) -> usize {
        self.width * self.activation.inputs()
    }
}

/// How rows are brought to a common size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Normalization {
    /// What a row is divided by.
    pub kind: Norm,
    /// Added to the variance (layer norm) or to the mean square (RMS norm).
    pub epsilon: f64,
    /// Whether gammas are stored as their distance from 1: a row is multiplied with `1 + gamma` (Gemma).
    pub offset: bool,
}

impl Normalization {
    /// What a gamma starts as.
    pub fn initial_gamma(&self) -> f64 {
        if self.offset { 0.0 } else { 1.0 }
    }
}
