//! A block of a transformer: attention and a perceptron around the residual stream.

use serde::Serialize;

use crate::{Activation, Attention, Norm};

/// What a block is made of. Everything that two blocks of a model can differ in is here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    /// Between tokens.
    pub attention: Attention,
    /// On each token alone.
    pub perceptron: Perceptron,
    /// Before either of them.
    pub norm: Normalization,
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
}
