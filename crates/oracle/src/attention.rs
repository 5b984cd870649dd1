//! Causal self-attention: `softmax(q k^T / sqrt(d))`, dropout on it, times `v`, for each sequence and head.

use crate::dropout::Mask;

/// The sizes of an attention: `b` sequences of `s` tokens, `a` heads of width `d`.
#[derive(Clone, Copy)]
pub(crate) struct Attention {
    pub(crate) sequences: usize,
    pub(crate) seq_len: usize,
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
}

/// The three parts of a head's columns in `qkv`.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;

impl Attention {
    /// `out[n, h]` from `qkv[n, 3h]`, whose columns are q, k, v of head 0, of head 1, ...
    pub(crate) fn forward(&self, qkv: &[f64], mask: &Mask) -> Vec<f64> {
        let mut out = vec![0.0; qkv.len() / 3];
        for (sequence, head, query) in self.queries() {
            let weights = self.probabilities(qkv, sequence, head, query);
            let at = self.out_index(sequence, head, query);
            for (key, weight) in weights.iter().enumerate() {
                let kept = weight * mask.factor(self.mask_index(sequence, head, query, key));
                let v = self.index(sequence, head, key, V);
                for j in 0..self.head_dim {
                    out[at + j] += kept * qkv[v + j];
                }
            }
        }
        out
    }

    /// `dqkv[n, 3h]` from `dout[n, h]` and the forward's `qkv` and `mask`.
    pub(crate) fn backward(&self, dout: &[f64], qkv: &[f64], mask: &Mask) -> Vec<f64> {
        let mut dqkv = vec![0.0; qkv.len()];
        for (sequence, head, query) in self.queries() {
            let weights = self.probabilities(qkv, sequence, head, query);
            let at = self.out_index(sequence, head, query);

            let mut dweights = vec![0.0; query + 1];
            for key in 0..=query {
                let factor = mask.factor(self.mask_index(sequence, head, query, key));
                let v = self.index(sequence, head, key, V);
                for j in 0..self.head_dim {
                    dweights[key] += dout[at + j] * qkv[v + j] * factor;
                    dqkv[v + j] += dout[at + j] * weights[key] * factor;
                }
            }

            let mean: f64 = (0..=query).map(|key| weights[key] * dweights[key]).sum();
            let q = self.index(sequence, head, query, Q);
            for key in 0..=query {
                let dscore = weights[key] * (dweights[key] - mean) * self.scale();
                let k = self.index(sequence, head, key, K);
                for j in 0..self.head_dim {
                    dqkv[q + j] += dscore * qkv[k + j];
                    dqkv[k + j] += dscore * qkv[q + j];
                }
            }
        }
        dqkv
    }

    /// The softmax over the keys `0..=query`: no token sees a later one.
    fn probabilities(&self, qkv: &[f64], sequence: usize, head: usize, query: usize) -> Vec<f64> {
        let q = self.index(sequence, head, query, Q);
        let score = |key| {
            let k = self.index(sequence, head, key, K);
            (0..self.head_dim).map(|j| qkv[q + j] * qkv[k + j]).sum::<f64>() * self.scale()
        };
        softmax(&(0..=query).map(score).collect::<Vec<_>>())
    }

    fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    fn queries(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let of_sequence = move |b| (0..self.heads).flat_map(move |a| (0..self.seq_len).map(move |t| (b, a, t)));
        (0..self.sequences).flat_map(of_sequence)
    }

    /// Where in `qkv[n, 3h]` a token's q, k or v of a head begins.
    fn index(&self, sequence: usize, head: usize, token: usize, part: usize) -> usize {
        let row = sequence * self.seq_len + token;
        ((row * self.heads + head) * 3 + part) * self.head_dim
    }

    /// Where in `out[n, h]` a token's result of a head begins.
    fn out_index(&self, sequence: usize, head: usize, token: usize) -> usize {
        let row = sequence * self.seq_len + token;
        (row * self.heads + head) * self.head_dim
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
