//! A block of a transformer: attention and a perceptron, or experts, around the residual stream.

use serde::Serialize;

use crate::{Activation, Attention, Experts, Norm, NormPlace, ResidualOrder};

/// What a block is made of. Everything that two blocks of a model can differ in is here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    /// Between tokens.
    pub attention: Attention,
    /// On each token alone.
    pub feed_forward: FeedForward,
    /// Of the residual stream.
    pub norm: Normalization,
    /// Before or after attention and perceptron.
    pub norm_place: NormPlace,
    /// How both are added to the stream.
    pub residual: Residual,
}

impl Block {
    /// Elements of the weights that a token of sequences of `seq_len` is multiplied with in the mean, in a model whose residual
    /// stream has `hidden` columns: those of experts as often as they have places for it.
    pub fn product_weights(&self, hidden: usize, seq_len: usize) -> f64 {
        self.weights_of(hidden, |experts| experts.rows(seq_len))
    }

    /// Elements of all weights, those of every expert among them.
    pub fn weights(&self, hidden: usize) -> usize {
        self.weights_of(hidden, |experts| experts.count as f64) as usize
    }

    /// Elements of the weights of its experts; 0 without them.
    pub fn expert_weights(&self, hidden: usize) -> usize {
        self.feed_forward.experts().map_or(0, |experts| experts.count * hidden * experts.expert.columns())
    }

    /// The same with as many experts as `counted` says.
    fn weights_of(&self, hidden: usize, counted: impl Fn(&Experts) -> f64) -> f64 {
        let Self { attention, feed_forward, .. } = self;
        let columns = match feed_forward {
            FeedForward::Dense(perceptron) => perceptron.columns() as f64,
            FeedForward::Experts(experts) => {
                let shared = experts.shared.map_or(0, |shared| shared.columns()) + experts.count;
                counted(experts) * experts.expert.columns() as f64 + shared as f64
            }
        };
        let of_attention: usize = attention.input_layers(hidden).map(|layer| layer.inputs * layer.outputs).sum();
        of_attention as f64 + hidden as f64 * (attention.width() as f64 + columns)
    }
}

/// What a block does on each token alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedForward {
    /// One perceptron for all tokens.
    Dense(Perceptron),
    /// Some of several, chosen for each token.
    Experts(Experts),
}

impl FeedForward {
    /// The perceptron for all tokens, if that is all.
    pub fn dense(&self) -> Option<&Perceptron> {
        match self {
            Self::Dense(perceptron) => Some(perceptron),
            Self::Experts(_) => None,
        }
    }

    /// The experts, if there are any.
    pub fn experts(&self) -> Option<&Experts> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(experts),
        }
    }

    /// The function of its perceptrons.
    pub fn activation(&self) -> Activation {
        match self {
            Self::Dense(perceptron) => perceptron.activation,
            Self::Experts(experts) => experts.expert.activation,
        }
    }

    /// Its perceptrons, those that differ each once: the one for all tokens, or an expert and the shared one.
    pub fn perceptrons(&self) -> impl Iterator<Item = &Perceptron> {
        let (first, second) = match self {
            Self::Dense(perceptron) => (perceptron, None),
            Self::Experts(experts) => (&experts.expert, experts.shared.as_ref()),
        };
        std::iter::once(first).chain(second)
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

    /// Columns of both products for each column of the residual stream.
    pub(crate) fn columns(&self) -> usize {
        self.up_width() + self.width
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
