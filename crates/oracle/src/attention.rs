//! Self-attention: `softmax(scale q k^T / sqrt(d))`, dropout on it, times `v`, for each sequence and head.

use std::ops::Range;

use crate::dropout::Mask;

/// The sizes of an attention: `b` sequences of `s` rows, `a` heads of width `d`, `k` keys of that width and values of width `v`
/// that `a / k` heads each share.
#[derive(Clone, Copy)]
pub(crate) struct Attention {
    pub(crate) sequences: usize,
    pub(crate) seq_len: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) value_dim: usize,
    /// Whether no row sees a later one.
    pub(crate) causal: bool,
    /// How many rows a row sees at most, itself and those right before it.
    pub(crate) window: Option<usize>,
    /// What scores are multiplied with beside `1 / sqrt(d)`.
    pub(crate) scale: f64,
    /// Scores are `cap tanh(score / cap)`.
    pub(crate) cap: Option<f64>,
}

/// What a head reads of a row of `qkv`.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Query,
    Key,
    Value,
}

impl Attention {
    /// `out[n, a v]` from `qkv[n, a d + k (d + v)]`, whose columns are the queries of the first `a / k` heads, their key,
    /// their value, the queries of the next heads, ...
    pub(crate) fn forward(&self, qkv: &[f64], mask: &Mask) -> Vec<f64> {
        let mut out = vec![0.0; self.sequences * self.seq_len * self.heads * self.value_dim];
        for (sequence, head, query) in self.queries() {
            let weights = self.probabilities(qkv, sequence, head, query);
            let at = self.out_index(sequence, head, query);
            for (key, weight) in self.keys(query).zip(&weights) {
                let kept = weight * mask.factor(self.mask_index(sequence, head, query, key));
                let v = self.index(sequence, head, key, Part::Value);
                for j in 0..self.value_dim {
                    out[at + j] += kept * qkv[v + j];
                }
            }
        }
        out
    }

    /// `dqkv[n, a d + k (d + v)]` from `dout[n, a v]` and the forward's `qkv` and `mask`.
    pub(crate) fn backward(&self, dout: &[f64], qkv: &[f64], mask: &Mask) -> Vec<f64> {
        let mut dqkv = vec![0.0; qkv.len()];
        for (sequence, head, query) in self.queries() {
            let weights = self.probabilities(qkv, sequence, head, query);
            let at = self.out_index(sequence, head, query);

            let mut dweights = vec![0.0; weights.len()];
            for (n, key) in self.keys(query).enumerate() {
                let factor = mask.factor(self.mask_index(sequence, head, query, key));
                let v = self.index(sequence, head, key, Part::Value);
                for j in 0..self.value_dim {
                    dweights[n] += dout[at + j] * qkv[v + j] * factor;
                    dqkv[v + j] += dout[at + j] * weights[n] * factor;
                }
            }

            let mean: f64 = (0..weights.len()).map(|n| weights[n] * dweights[n]).sum();
            let q = self.index(sequence, head, query, Part::Query);
            for (n, key) in self.keys(query).enumerate() {
                let slope = self.slope(self.product(qkv, sequence, head, query, key));
                let dscore = weights[n] * (dweights[n] - mean) * slope * self.scale();
                let k = self.index(sequence, head, key, Part::Key);
                for j in 0..self.head_dim {
                    dqkv[q + j] += dscore * qkv[k + j];
                    dqkv[k + j] += dscore * qkv[q + j];
                }
            }
        }
        dqkv
    }

    /// The softmax over the keys that the query sees.
    fn probabilities(&self, qkv: &[f64], sequence: usize, head: usize, query: usize) -> Vec<f64> {
        let score = |key| {
            let score = self.product(qkv, sequence, head, query, key);
            self.cap.map_or(score, |cap| cap * (score / cap).tanh())
        };
        softmax(&self.keys(query).map(score).collect::<Vec<_>>())
    }

    /// `scale q k^T / sqrt(d)` of a query and a key.
    fn product(&self, qkv: &[f64], sequence: usize, head: usize, query: usize, key: usize) -> f64 {
        let q = self.index(sequence, head, query, Part::Query);
        let k = self.index(sequence, head, key, Part::Key);
        (0..self.head_dim).map(|j| qkv[q + j] * qkv[k + j]).sum::<f64>() * self.scale()
    }

    /// The derivative of the capped score by the score.
    fn slope(&self, score: f64) -> f64 {
        self.cap.map_or(1.0, |cap| 1.0 - (score / cap).tanh().powi(2))
    }

    /// The keys that a query sees.
    fn keys(&self, query: usize) -> Range<usize> {
        let end = if self.causal { query + 1 } else { self.seq_len };
        let first = self.window.map_or(0, |window| end.saturating_sub(window));
        first..end
    }

    fn scale(&self) -> f64 {
        self.scale / (self.head_dim as f64).sqrt()
    }

    fn queries(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let of_sequence = move |b| (0..self.heads).flat_map(move |a| (0..self.seq_len).map(move |t| (b, a, t)));
        (0..self.sequences).flat_map(of_sequence)
    }

    /// Heads that share a key and a value.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Columns of a key and its value.
    pub(crate) fn pair_width(&self) -> usize {
        self.head_dim + self.value_dim
    }

    /// Where in `qkv[n, a d + k (d + v)]` the part of a row that a head reads begins.
    pub(crate) fn index(&self, sequence: usize, head: usize, row: usize, part: Part) -> usize {
        let group = self.group();
        let before = match part {
            Part::Query => head % group,
            Part::Key => group,
            Part::Value => group + 1,
        };
        let row = sequence * self.seq_len + row;
        let of_group = group * self.head_dim + self.pair_width();
        (row * self.kv_heads + head / group) * of_group + before * self.head_dim
    }

    /// Where in `out[n, a v]` a row's result of a head begins.
    fn out_index(&self, sequence: usize, head: usize, row: usize) -> usize {
        let row = sequence * self.seq_len + row;
        (row * self.heads + head) * self.value_dim
    }

    fn mask_index(&self, sequence: usize, head: usize, query: usize, key: usize) -> usize {
        ((sequence * self.heads + head) * self.seq_len + query) * self.seq_len + key
    }
}

/// `exp(score) / sum`, the largest score subtracted first so that nothing overflows.
pub(crate) fn softmax(scores: &[f64]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}
