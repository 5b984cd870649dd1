//! Attention over whole sequences, tile by tile: the matrix of scores is never stored.
//!
//! The method is FlashAttention's (Dao et al. 2022). Letters: s = sequence length, d = head
//! dimension; a sequence's rows are contiguous; `qkv` is [rows, heads * 3 * d], each head's
//! query, key and value columns side by side; outputs are [rows, heads * d].

mod backward;
mod forward;
mod pack;
mod tile;

pub use backward::attention_backward;
pub use forward::attention_forward;

/// What an attention kernel works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttentionShape {
    /// Independent sequences.
    pub sequences: usize,
    /// Tokens in each, s.
    pub seq_len: usize,
    /// Heads on this rank.
    pub heads: usize,
    /// Columns of a head's query, d; scores are scaled by 1 / sqrt(d).
    pub head_dim: usize,
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
}

/// The factor of surviving probabilities, 1 / (1 - p), and whether the probability at
/// (sequence, head, query, key) survives.
pub type AttentionDropout<'a, T> = (T, &'a (dyn Fn(usize, usize, usize, usize) -> bool + Sync));

impl AttentionShape {
    /// Rows of `qkv`: tokens.
    pub fn rows(&self) -> usize {
        self.sequences * self.seq_len
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

    /// How many of the keys from `first` on the query at `query` sees.
    fn visible(&self, query: usize, first: usize) -> usize {
        let end = if self.causal { query + 1 } else { self.seq_len };
        end.saturating_sub(first)
    }

    /// Checks the lengths that both directions share.
    fn check(&self, qkv: usize, out: usize, log_sum_exp: usize) {
        let rows = self.rows();
        assert_eq!(qkv, rows * self.qkv_cols(), "qkv of {self:?}");
        assert_eq!(out, rows * self.out_cols(), "output of {self:?}");
        assert_eq!(log_sum_exp, rows * self.heads, "log_sum_exp of {self:?}");
    }
}
