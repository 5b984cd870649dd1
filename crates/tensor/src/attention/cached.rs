//! Attention to keys and values of earlier passes, for generation.
//!
//! Letters: d = columns of a query and a key, v = columns of a value, n = positions of a sequence that are in the cache,
//! c = its capacity. The cache is [sequences, kv_heads, c (d + v)]: of each sequence and group of heads the keys, cut into
//! tiles of 32 positions that lie as [d, positions], then the values [c, v]. A query reads both once, in the order of memory;
//! what it costs is what the n positions take, however many there were before.

use super::{AttentionShape, attention_forward};
use crate::cap::soften;
use crate::context::ContextPart;
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{largest, sum};
use crate::pool::{Disjoint, Pool};
use crate::stored::{Stored, round_all};

/// Positions in a tile of keys; the last tile of a cache may have fewer.
const TILE: usize = 32;

/// What the kernels of a cache work on.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CacheShape {
    /// Independent sequences.
    pub sequences: usize,
    /// Tokens of each in a pass.
    pub tokens: usize,
    /// Positions of each that the cache has room for, c.
    pub capacity: usize,
    /// Heads on this rank.
    pub heads: usize,
    /// Heads of keys and values on this rank, each shared by heads / kv_heads heads.
    pub kv_heads: usize,
    /// Columns of a head's query, d.
    pub head_dim: usize,
    /// Columns of a value, and of what a head gives, v.
    pub value_dim: usize,
    /// How many positions a query sees at most, the newest ones.
    pub window: Option<usize>,
    /// Scores are q k^T times this over sqrt(d).
    pub scale: f64,
    /// The soft cap of scores.
    pub cap: Option<f64>,
}

impl CacheShape {
    /// Elements of the cache.
    pub fn elements(&self) -> usize {
        self.sequences * self.kv_heads * self.of_unit()
    }

    /// Elements of the cache of a sequence and a group of heads.
    fn of_unit(&self) -> usize {
        self.capacity * (self.head_dim + self.value_dim)
    }

    fn group_heads(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// The columns of `qkv` in which a group begins: its queries, then its key and its value.
    fn first_col(&self, group: usize) -> usize {
        group * self.group_cols()
    }

    /// Columns of a group in `qkv`.
    fn group_cols(&self) -> usize {
        (self.group_heads() + 1) * self.head_dim + self.value_dim
    }

    fn qkv_cols(&self) -> usize {
        self.kv_heads * self.group_cols()
    }

    fn check(&self, starts: &[usize], qkv: usize, cache: usize) {
        assert_eq!(self.kv_heads * self.group_heads(), self.heads, "groups of {self:?}");
        assert_eq!(starts.len(), self.sequences, "starts of {self:?}");
        assert_eq!(qkv, self.sequences * self.tokens * self.qkv_cols(), "qkv of {self:?}");
        assert_eq!(cache, self.elements(), "cache of {self:?}");
    }
}

/// Puts the keys and values of qkv [sequences * tokens, heads * d + kv_heads * (d + v)] into the cache: those of token i of
/// a sequence at position `starts[sequence] + i`; what is beyond the capacity, padding of a pass, is left out.
pub fn store_keys_values<S: Stored>(pool: &Pool, shape: CacheShape, starts: &[usize], qkv: &[S], cache: &mut [S]) {
    shape.check(starts, qkv.len(), cache.len());
    let d = shape.head_dim;
    let v = shape.value_dim;
    let capacity = shape.capacity;
    let units = cache.chunks_exact_mut(shape.of_unit().max(1)).enumerate();
    pool.each(units, |(unit, cache)| {
        let sequence = unit / shape.kv_heads;
        let group = unit % shape.kv_heads;
        let (keys, values) = cache.split_at_mut(capacity * d);
        for token in 0..shape.tokens.min(capacity.saturating_sub(starts[sequence])) {
            let position = starts[sequence] + token;
            let row = (sequence * shape.tokens + token) * shape.qkv_cols();
            let from = row + shape.first_col(group) + shape.group_heads() * d;
            let (key, value) = qkv[from..from + d + v].split_at(d);
            let first = position / TILE * TILE;
            let width = TILE.min(capacity - first);
            let tile = &mut keys[first * d..(first + width) * d];
            tile[position - first..].iter_mut().step_by(width).zip(key).for_each(|(to, from)| *to = *from);
            values[position * v..(position + 1) * v].copy_from_slice(value);
        }
    });
}

/// out [sequences * tokens, heads * v] = softmax(q k^T / sqrt(d)) v, with the queries of qkv, of which token i of a
/// sequence is at position `starts[sequence] + i` and sees the keys and values in the cache up to it, which
/// [`store_keys_values`] has put there. Rows beyond the capacity, padding of a pass, are zero.
pub fn cached_attention<S: Stored>(
    pool: &Pool,
    shape: CacheShape,
    starts: &[usize],
    qkv: &[S],
    cache: &[S],
    out: &mut [S],
) {
    shape.check(starts, qkv.len(), cache.len());
    let rows = shape.sequences * shape.tokens;
    let width = shape.heads * shape.value_dim;
    assert_eq!(out.len(), rows * width, "output of {shape:?}");
    if shape.tokens > 1 && starts.iter().all(|start| *start == 0) {
        return from_the_beginning(pool, shape, qkv, out);
    }
    let heads = shape.group_heads();
    let d = shape.head_dim;
    let v = shape.value_dim;
    let of_unit = shape.of_unit();
    let out = Disjoint::new(out);
    pool.each(0..shape.sequences * shape.kv_heads, |unit| {
        let sequence = unit / shape.kv_heads;
        let group = unit % shape.kv_heads;
        let (keys, values) = cache[unit * of_unit..(unit + 1) * of_unit].split_at(shape.capacity * d);
        S::Real::with_scratch(heads * (shape.capacity + v), |scratch| {
            let (scores, sums) = scratch.split_at_mut(heads * shape.capacity);
            for token in 0..shape.tokens {
                let row = sequence * shape.tokens + token;
                let seen = starts[sequence] + token + 1;
                let first = row * shape.qkv_cols() + shape.first_col(group);
                let queries = &qkv[first..first + heads * d];
                // SAFETY: this unit alone writes its rows of its heads' columns.
                let out = unsafe { out.part(row * width + group * heads * v, heads * v) };
                if seen > shape.capacity {
                    out.fill(S::ZERO);
                    continue;
                }
                vectorised(
                    #[inline(always)]
                    || {
                        attend(shape, queries, keys, values, seen, scores, sums);
                        round_all(out, sums);
                    },
                );
            }
        });
    });
}

/// A first pass of several tokens: attention among them, as in training.
fn from_the_beginning<S: Stored>(pool: &Pool, shape: CacheShape, qkv: &[S], out: &mut [S]) {
    let CacheShape { sequences, tokens, heads, kv_heads, head_dim, value_dim, window, scale, cap, .. } = shape;
    let seq_len = tokens;
    let context = ContextPart::WHOLE;
    let causal = true;
    let shape = AttentionShape {
        sequences,
        seq_len,
        context,
        heads,
        kv_heads,
        head_dim,
        value_dim,
        causal,
        window,
        scale,
        cap,
    };
    S::Real::with_scratch(sequences * tokens * heads, |log_sum_exp| {
        attention_forward(pool, shape, qkv, None, out, log_sum_exp, None);
    });
}

/// y [sequences, cols] = of each sequence of x [sequences * tokens, cols] the row `newest[sequence]`.
pub fn newest_rows<S: Stored>(cols: usize, tokens: usize, newest: &[usize], x: &[S], y: &mut [S]) {
    assert_eq!((x.len(), y.len()), (newest.len() * tokens * cols, newest.len() * cols));
    if tokens * cols == 0 {
        return;
    }
    let rows = y.chunks_exact_mut(cols).zip(x.chunks_exact(tokens * cols)).zip(newest);
    rows.for_each(|((to, from), row)| to.copy_from_slice(&from[row * cols..(row + 1) * cols]));
}

/// The queries [heads, d] of one token, which see the first `seen` positions, or the newest of them in the window;
/// scores [heads, capacity]; out [heads, v].
#[inline(always)]
fn attend<S: Stored>(
    shape: CacheShape,
    queries: &[S],
    keys: &[S],
    values: &[S],
    seen: usize,
    scores: &mut [S::Real],
    out: &mut [S::Real],
) {
    out.fill(S::Real::ZERO);
    let d = shape.head_dim;
    let v = shape.value_dim;
    let capacity = shape.capacity;
    let first = shape.window.map_or(0, |window| seen.saturating_sub(window));
    let scale = S::Real::from_f64(shape.scale / (d as f64).sqrt());
    for (tile, keys) in keys.chunks(TILE * d).enumerate().take(seen.div_ceil(TILE)).skip(first / TILE) {
        let width = keys.len() / d;
        for (query, scores) in queries.chunks_exact(d).zip(scores.chunks_exact_mut(capacity)) {
            products(query, keys, scale, &mut scores[tile * TILE..tile * TILE + width]);
        }
    }
    for (scores, out) in scores.chunks_exact_mut(capacity).zip(out.chunks_exact_mut(v)) {
        let scores = &mut scores[first..seen];
        if let Some(cap) = shape.cap {
            soften(scores, S::Real::from_f64(cap));
        }
        let max = largest(scores);
        scores.iter_mut().for_each(|score| *score = (*score - max).exp());
        let factor = S::Real::ONE / sum(scores, |score| score);
        for (score, value) in scores.iter().zip(values.chunks_exact(v).skip(first)) {
            let weight = *score * factor;
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value.widen());
        }
    }
}

/// scores = keys^T query scale, for a tile of keys [d, positions].
#[inline(always)]
fn products<S: Stored>(query: &[S], keys: &[S], scale: S::Real, scores: &mut [S::Real]) {
    let mut sums = [S::Real::ZERO; TILE];
    if scores.len() == TILE {
        for (query, keys) in query.iter().zip(keys.chunks_exact(TILE)) {
            for i in 0..TILE {
                sums[i] += query.widen() * keys[i].widen();
            }
        }
    } else {
        for (query, keys) in query.iter().zip(keys.chunks_exact(scores.len().max(1))) {
            sums.iter_mut().zip(keys).for_each(|(sum, key)| *sum += query.widen() * key.widen());
        }
    }
    scores.iter_mut().zip(sums).for_each(|(score, sum)| *score = sum * scale);
}
