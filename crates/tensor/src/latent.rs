//! Queries, keys and values of latent attention, put beside each other.
//!
//! Letters: d = columns of a query and a key, v = columns of a value, k = columns of a key that all heads share, the first
//! ones; `qkv` is [rows, heads * (2 d + v)]: of each head its query, its key and its value. `pairs` is
//! [rows, heads * (d - k + v)]: of each head the rest of its key and its value. `shared` is [rows, k].

use crate::dispatch::vectorised;
use crate::pool::Pool;
use crate::stored::Stored;

/// What is put beside each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatentShape {
    /// Rows.
    pub rows: usize,
    /// Heads on this rank.
    pub heads: usize,
    /// Columns of a query and of a key, d.
    pub head_dim: usize,
    /// Columns of a value, v.
    pub value_dim: usize,
    /// Columns of a key that all heads share, k.
    pub shared: usize,
}

impl LatentShape {
    /// Columns of a head in `qkv`.
    fn head(&self) -> usize {
        2 * self.head_dim + self.value_dim
    }

    /// Columns of a head in `pairs`.
    fn pair(&self) -> usize {
        self.head_dim - self.shared + self.value_dim
    }

    /// Checks lengths; returns the rows of a piece of work.
    fn check(&self, pool: &Pool, queries: usize, pairs: usize, shared: usize, qkv: usize) -> usize {
        assert!(self.shared <= self.head_dim, "{self:?}");
        let of_heads = |cols: usize| self.rows * self.heads * cols;
        let sizes = [of_heads(self.head_dim), of_heads(self.pair()), self.rows * self.shared, of_heads(self.head())];
        assert_eq!([queries, pairs, shared, qkv], sizes, "{self:?}");
        pool.rows_per_piece(self.rows, self.heads * self.head())
    }
}

/// qkv = queries [rows, heads * d], shared and pairs beside each other.
pub fn join_latent<S: Stored>(
    pool: &Pool,
    shape: LatentShape,
    queries: &[S],
    pairs: &[S],
    shared: &[S],
    qkv: &mut [S],
) {
    let LatentShape { heads, head_dim: d, shared: k, .. } = shape;
    let piece = shape.check(pool, queries.len(), pairs.len(), shared.len(), qkv.len());
    if qkv.is_empty() {
        return;
    }
    pool.each(qkv.chunks_mut(piece * heads * shape.head()).enumerate(), |(number, qkv)| {
        for (row, qkv) in qkv.chunks_exact_mut(heads * shape.head()).enumerate() {
            let row = number * piece + row;
            let shared = &shared[row * k..(row + 1) * k];
            for (head, qkv) in qkv.chunks_exact_mut(shape.head()).enumerate() {
                let at = row * heads + head;
                qkv[..d].copy_from_slice(&queries[at * d..(at + 1) * d]);
                qkv[d..d + k].copy_from_slice(shared);
                qkv[d + k..].copy_from_slice(&pairs[at * shape.pair()..(at + 1) * shape.pair()]);
            }
        }
    });
}

/// The gradients of [`join_latent`]' operands, given that of `qkv`; that of `shared` is summed over heads, in their order.
pub fn split_latent<S: Stored>(
    pool: &Pool,
    shape: LatentShape,
    dqkv: &[S],
    dqueries: &mut [S],
    dpairs: &mut [S],
    dshared: &mut [S],
) {
    let LatentShape { heads, head_dim: d, shared: k, .. } = shape;
    let piece = shape.check(pool, dqueries.len(), dpairs.len(), dshared.len(), dqkv.len());
    if dqkv.is_empty() {
        return;
    }
    let gradients = dqueries
        .chunks_mut(piece * heads * d)
        .zip(dpairs.chunks_mut(piece * heads * shape.pair()))
        .zip(dshared.chunks_mut(piece * k));
    pool.each(gradients.zip(dqkv.chunks(piece * heads * shape.head())), |(((dq, dp), ds), dqkv)| {
        S::Real::with_scratch(k, |sums| {
            for (row, dqkv) in dqkv.chunks_exact(heads * shape.head()).enumerate() {
                sums.fill(S::Real::ZERO);
                for (head, dqkv) in dqkv.chunks_exact(shape.head()).enumerate() {
                    let at = row * heads + head;
                    dq[at * d..(at + 1) * d].copy_from_slice(&dqkv[..d]);
                    dp[at * shape.pair()..(at + 1) * shape.pair()].copy_from_slice(&dqkv[d + k..]);
                    vectorised(
                        #[inline(always)]
                        || sums.iter_mut().zip(&dqkv[d..d + k]).for_each(|(sum, x)| *sum += x.widen()),
                    );
                }
                ds[row * k..(row + 1) * k].iter_mut().zip(&*sums).for_each(|(to, sum)| *to = S::rounded(*sum));
            }
        });
    });
}
