//! Attention, tile by tile: the matrix of scores is never stored.
//!
//! The method is FlashAttention's (Dao et al. 2022). Letters: s = sequence length, d = head
//! dimension; a sequence's rows are contiguous; `qkv` is [rows, heads * 3 * d], each head's
//! query, key and value columns side by side; outputs are [rows, heads * d].
//!
//! Where a rank holds a part of each sequence (see [`ContextPart`]), rows are its own tokens.
//! They attend to the keys and values of all tokens, `kv` [parts, sequences, s / parts,
//! heads * 2 * d]: what gathering every part's [`pack_keys_values`] gives.

mod backward;
mod chunks;
mod forward;
mod keys_values;
mod pack;
mod tile;

use crate::context::ContextPart;
use chunks::Columns;

pub use backward::attention_backward;
pub use forward::attention_forward;
pub use keys_values::{pack_keys_values, unpack_keys_values};

/// What an attention kernel works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttentionShape {
    /// Independent sequences.
    pub sequences: usize,
    /// Tokens in each, s, of which this rank holds those of `context`.
    pub seq_len: usize,
    /// The tokens of each sequence that are queries here.
    pub context: ContextPart,
    /// Heads on this rank.
    pub heads: usize,
    /// Columns of a head's query, d; scores are scaled by 1 / sqrt(d).
    pub head_dim: usize,
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
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
        self.heads * 3 * self.head_dim
    }

    /// Columns of the output.
    fn out_cols(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Every (sequence, head): the unit of work.
    fn units(&self) -> impl Iterator<Item = (usize, usize)> + Send + use<> {
        let heads = self.heads;
        (0..self.sequences * heads).map(move |unit| (unit / heads, unit % heads))
    }

    /// Checks the lengths that both directions share.
    fn check(&self, qkv: usize, out: usize, log_sum_exp: usize) {
        self.context.check(self.seq_len);
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
        assert_eq!(kv, self.sequences * self.seq_len * self.heads * 2 * self.head_dim, "kv of {self:?}");
        Columns::KeyValue
    }
}
