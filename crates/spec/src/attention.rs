//! Self-attention as a block describes it.

use serde::Serialize;

use crate::{Normalization, RotaryRule};

/// Self-attention of a block: `softmax(score_scale q k^T / sqrt(head_dim)) v`, for each head.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Attention {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`. Fewer than `heads`: grouped-query attention.
    pub kv_heads: usize,
    /// Columns of a query and of a key; often `hidden / heads`.
    pub head_dim: usize,
    /// Columns of a value, and of what a head gives; often `head_dim`.
    pub value_dim: usize,
    /// How queries, keys and values are made of narrow rows; `None`: of the stream, by one product.
    pub latent: Option<Latent>,
    /// Whether a position attends only to itself and those before it.
    pub causal: bool,
    /// How many positions a position attends to at most, itself and those right before it; only where attention is causal.
    pub window: Option<usize>,
    /// What scores are multiplied with beside `1 / sqrt(head_dim)`; above 0, often 1.
    pub score_scale: f64,
    /// The soft cap of scores, `cap * tanh(score / cap)`.
    pub cap: Option<f64>,
    /// Queries and keys turned by their positions; `None`: this block does not look at positions.
    pub rotary: Option<Rotary>,
    /// The norm of queries, and that of keys, before they turn.
    pub qk_norm: Option<QueryKeyNorm>,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether the projection of the heads' results has a bias.
    pub projection_bias: bool,
}

/// Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): the stream is brought to narrow rows, which are normed as the
/// stream is, and these make queries, keys and values. There are as many keys as heads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latent {
    /// Columns of the rows that make queries; `None`: the stream makes them.
    pub queries: Option<usize>,
    /// Columns of the rows that make keys and values.
    pub keys_values: usize,
    /// Columns of a key that the stream makes once for all heads, the first ones of each; at least 1 and below `head_dim`.
    pub shared_key: usize,
}

/// Norms of queries and keys, each with vectors of its own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QueryKeyNorm {
    /// How they norm.
    pub rule: Normalization,
    /// What is normed together.
    pub over: NormedOver,
}

/// The columns that a norm of queries, or of keys, takes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum NormedOver {
    /// Those of a head; one gamma serves all heads.
    Head,
    /// Those of all heads, each with its own element of gamma.
    AllHeads,
}

impl QueryKeyNorm {
    /// How many of so many heads are normed together.
    pub fn heads(&self, all: usize) -> usize {
        match self.over {
            NormedOver::Head => 1,
            NormedOver::AllHeads => all,
        }
    }
}

/// Rotary positions (RoPE): pairs of numbers of a head turn by angles that grow with the position, halves of a head paired.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rotary {
    /// Base of the frequencies: pair `i` turns by `position * base^(-2 i / d)`.
    pub base: f64,
    /// The first so many columns of a head turn, `d` above; an even number, at most `head_dim`.
    pub columns: usize,
    /// What the frequencies are multiplied with.
    pub scaling: RotaryScaling,
}

/// How rotary frequencies are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum RotaryScaling {
    /// They stay.
    None,
    /// All are divided by `factor` (position interpolation, Chen et al. 2023).
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// Those whose wave is longer than `positions / low` are divided by `factor`, those whose wave is shorter than
    /// `positions / high` stay, and those between are mixed (Llama 3.1's released code).
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Below `high`.
        low: f64,
        /// Above `low`.
        high: f64,
        /// The length of sequences before.
        positions: usize,
    },
    /// Frequencies of pairs after the one whose wave fits `low` times into `positions` are divided by `factor`, those of pairs
    /// before the one whose wave fits `high` times stay, and those between are mixed by their place among them (YaRN: Peng et
    /// al. 2023, arXiv 2309.00071, section 3.2; the ends are whole pairs, as in its released code).
    Yarn {
        /// At least 1.
        factor: f64,
        /// Below `high`.
        low: f64,
        /// Above `low`.
        high: f64,
        /// The length of sequences before.
        positions: usize,
    },
}

impl RotaryScaling {
    /// By its name.
    pub(crate) fn rule(&self) -> RotaryRule {
        match self {
            Self::None => RotaryRule::None,
            Self::Linear { .. } => RotaryRule::Linear,
            Self::Llama3 { .. } => RotaryRule::Llama3,
            Self::Yarn { .. } => RotaryRule::Yarn,
        }
    }
}

impl Rotary {
    /// The frequencies of the pairs of a head that turn, in radians a position.
    pub fn frequencies(&self) -> impl Iterator<Item = f64> {
        let Self { base, columns, .. } = *self;
        (0..columns / 2).map(move |pair| self.scaled(pair, base.powf(-2.0 * pair as f64 / columns as f64)))
    }

    /// The frequency of a pair as it is used.
    fn scaled(&self, pair: usize, frequency: f64) -> f64 {
        match self.scaling {
            RotaryScaling::None => frequency,
            RotaryScaling::Linear { factor } => frequency / factor,
            RotaryScaling::Llama3 { factor, low, high, positions } => {
                let waves = positions as f64 * frequency / std::f64::consts::TAU;
                let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }
            RotaryScaling::Yarn { factor, low, high, positions } => {
                let [first, last] = self.mixed_pairs(low, high, positions);
                // Where the ends meet, all after them is scaled.
                let divided = ((pair as f64 - first) / (last - first).max(1e-3)).clamp(0.0, 1.0);
                frequency * (1.0 - divided + divided / factor)
            }
        }
    }

    /// The pairs between which YaRN mixes. With a base so small that waves of all columns stay, the first lies after the last; the
    /// released code scales then what it should keep.
    pub(crate) fn mixed_pairs(&self, low: f64, high: f64, positions: usize) -> [f64; 2] {
        let first = self.pair_of_waves(high, positions).floor().max(0.0);
        [first, self.pair_of_waves(low, positions).ceil().min(self.columns as f64 - 1.0)]
    }

    /// Where the pair would stand whose wave fits so many times into so many positions.
    fn pair_of_waves(&self, waves: f64, positions: usize) -> f64 {
        let wave = positions as f64 / (waves * std::f64::consts::TAU);
        self.columns as f64 * wave.ln() / (2.0 * self.base.ln())
    }
}

impl Attention {
    /// Columns of the queries of all heads.
    pub fn queries_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of what all heads give.
    pub fn width(&self) -> usize {
        self.heads * self.value_dim
    }

    /// Columns of a key and its value.
    pub fn pair_width(&self) -> usize {
        self.head_dim + self.value_dim
    }

    /// Columns of queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        self.queries_width() + self.kv_heads * self.pair_width()
    }

    /// Keys that count for a query of a sequence of so many tokens: those of its window, or all; without causal discount.
    pub fn keys(&self, tokens: usize) -> usize {
        self.window.map_or(tokens, |window| window.min(tokens))
    }

    /// FLOPs of the scores and of the sums that they weight, for a token and each token that it sees: `2 (d + v)` a head.
    pub fn flops_of_pair(&self) -> usize {
        2 * (self.queries_width() + self.width())
    }
}
