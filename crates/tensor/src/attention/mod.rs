//! Attention, tile by tile: the matrix of scores is never stored.
//!
//! The method is FlashAttention's (Dao et al. 2022). Letters: s = sequence length, d = columns of a
//! query and a key, v = columns of a value; a sequence's rows are contiguous; `qkv` is
//! [rows, heads * d + kv_heads * (d + v)], in kv_heads groups: the queries of the heads that share a
//! key, their key and value, side by side; outputs are [rows, heads * v].
//!
//! Where a rank holds a part of each sequence (see [`ContextPart`]), rows are its own tokens.
//! They attend to the keys and values of all tokens, `kv` [parts, sequences, s / parts,
//! kv_heads * (d + v)]: what gathering every part's [`pack_keys_values`] gives.

mod backward;
mod cached;
mod chunks;
mod forward;
mod heads;
mod keys_values;
mod pack;
mod tile;

use std::ops::Range;

use crate::context::ContextPart;
use chunks::Columns;

pub use backward::attention_backward;
pub use cached::{CacheShape, cached_attention, newest_rows, store_keys_values};
pub use forward::attention_forward;
pub use heads::{join_heads, split_heads};
pub use keys_values::{pack_keys_values, unpack_keys_values};

/// What an attention kernel works on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionShape {
    /// Independent sequences.
    pub sequences: usize,
    /// Tokens in each, s, of which this rank holds those of `context`.
    pub seq_len: usize,
    /// The tokens of each sequence that are queries here.
    pub context: ContextPart,
    /// Heads on this rank.
    pub heads: usize,
    /// Heads of keys and values on this rank, each shared by heads / kv_heads heads.
    pub kv_heads: usize,
    /// Columns of a head's query, d.
    pub head_dim: usize,
    /// Columns of a value, and of what a head gives, v.
    pub value_dim: usize,
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
    /// How many of these keys a query sees at most, the newest ones; only where it sees no later ones.
    pub window: Option<usize>,
    /// Scores are q k^T times this over sqrt(d).
    pub scale: f64,
    /// The soft cap of scores, cap * tanh(score / cap).
    pub cap: Option<f64>,
}

/// The factor of surviving probabilities, 1 / (1 - p), and whether the probability at
/// (sequence, head, query, key) survives; queries and keys by their positions in the sequence.
pub type AttentionDropout<'a, T> = (T, &'a (dyn Fn(usize, usize, usize, usize) -> bool + Sync));

impl AttentionShape {
    /// Rows of `qkv`: this rank's tokens.
    pub fn rows(&self) -> usize {
        self.sequences * self.context.tokens(self.seq_len)
    }

    /// Columns of `qkv`.
    fn qkv_cols(&self) -> usize {
        self.kv_heads * self.group_cols()
    }

    /// Columns of a group in `qkv`.
    fn group_cols(&self) -> usize {
        self.group_heads() * self.head_dim + self.pair_cols()
    }

    /// Columns of a key and its value.
    fn pair_cols(&self) -> usize {
        self.head_dim + self.value_dim
    }

    /// Heads that share a key and value.
    fn group_heads(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Columns of the output.
    fn out_cols(&self) -> usize {
        self.heads * self.value_dim
    }

    /// Every (sequence, group of heads): the unit of work.
    fn units(&self) -> impl Iterator<Item = (usize, usize)> + Send + use<> {
        let groups = self.kv_heads;
        (0..self.sequences * groups).map(move |unit| (unit / groups, unit % groups))
    }

    /// The heads of a group.
    fn heads_of(&self, group: usize) -> Range<usize> {
        group * self.group_heads()..(group + 1) * self.group_heads()
    }

    /// Checks the lengths that both directions share.
    fn check(&self, qkv: usize, out: usize, log_sum_exp: usize) {
        self.context.check(self.seq_len);
        assert!(self.window.is_none_or(|window| self.causal && window > 0), "window of {self:?}");
        assert_eq!(self.kv_heads * self.group_heads(), self.heads, "groups of {self:?}");
        let rows = self.rows();
        assert_eq!(qkv, rows * self.qkv_cols(), "qkv of {self:?}");
        assert_eq!(out, rows * self.out_cols(), "output of {self:?}");
        assert_eq!(log_sum_exp, rows * self.heads, "log_sum_exp of {self:?}");
    }

    /// The matrix that holds the keys and values, given the length of `kv` if there is one.
    fn columns(&self, kv: Option<usize>) -> Columns {
        let Some(kv) = kv else {
            assert_eq!(self.context.parts, 1, "a part attends to gathered keys and values");
            return Columns::QueryKeyValue;
        };
        assert_eq!(kv, self.sequences * self.seq_len * self.kv_heads * self.pair_cols(), "kv of {self:?}");
        Columns::KeyValue
    }
}
