//! Attention, forward: a running maximum and sum per query while its tiles of keys pass.

use std::ops::Range;

use super::chunks::{Columns, Queries, Side};
use super::pack::{copy_chunks, copy_runs, padded, take, transpose_runs, transposed};
use super::tile::{Operand, TILE, product};
use super::{AttentionDropout, AttentionShape};
use crate::cap::soften;
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{largest, sum};
use crate::pool::{Disjoint, Pool};
use crate::stored::{Stored, round_all};

/// out = softmax(q k^T / sqrt(d)) v for each sequence and head; log_sum_exp [rows, heads] = the
/// logarithm of each softmax' denominator, which the backward pass needs.
///
/// Keys and values are those of `keys_values`, the `kv` of all parts, or without it those of
/// `qkv`, whose sequences must be whole.
pub fn attention_forward<S: Stored>(
    pool: &Pool,
    shape: AttentionShape,
    qkv: &[S],
    keys_values: Option<&[S]>,
    out: &mut [S],
    log_sum_exp: &mut [S::Real],
    dropout: Option<AttentionDropout<'_, S::Real>>,
) {
    shape.check(qkv.len(), out.len(), log_sum_exp.len());
    let columns = shape.columns(keys_values.map(<[S]>::len));
    let kv = keys_values.unwrap_or(qkv);
    let out = Disjoint::new(out);
    let log_sum_exp = Disjoint::new(log_sum_exp);
    let s = padded(shape.seq_len);
    let [d, v] = [shape.head_dim, shape.value_dim].map(padded);
    let keys = transposed(shape.seq_len, shape.head_dim);
    let scratch = shape.packed_queries() * d + keys + s * v + TILE * (TILE + v + 2);
    pool.each(shape.units(), |(sequence, group)| {
        S::Real::with_scratch(scratch, |scratch| {
            let mut unit = Group::pack(shape, (kv, columns), sequence, group, scratch);
            for head in shape.heads_of(group) {
                let dropout =
                    dropout.map(|(factor, keep)| (factor, move |query, key| keep(sequence, head, query, key)));
                let dropout = dropout.as_ref().map(|(factor, keep)| (*factor, keep as Keep<'_>));
                unit.queries(sequence, head, qkv);
                let block = shape.out_block(sequence, head);
                unit.run(dropout, |token, values, lse| {
                    let first = block.start + token * block.stride;
                    // SAFETY: this unit alone writes its rows of its heads' columns.
                    unsafe {
                        let out = out.part(first, shape.value_dim);
                        vectorised(
                            #[inline(always)]
                            || round_all(out, values),
                        );
                        *log_sum_exp.at(first / shape.value_dim) = lse;
                    }
                });
            }
        });
    });
}

/// Whether the probability at the positions (query, key) survives.
pub(super) type Keep<'a> = &'a dyn Fn(usize, usize) -> bool;

/// One sequence's group of heads, packed: their keys and values, and the queries of one of them.
struct Group<'a, T> {
    shape: AttentionShape,
    /// This part's queries [packed, d], scaled.
    q: &'a mut [T],
    /// Keys, transposed by tile [s / TILE, d, TILE].
    k: &'a [T],
    /// Values [s, v].
    v: &'a [T],
    tile: Tile<'a, T>,
}

/// The state of one tile of queries.
struct Tile<'a, T> {
    /// Scores, then probabilities [TILE, TILE].
    p: &'a mut [T],
    /// The weighted sum of values so far [TILE, v].
    out: &'a mut [T],
    /// Each query's largest score so far.
    max: &'a mut [T],
    /// Each query's denominator so far.
    sum: &'a mut [T],
}

impl<'a, T: Element> Group<'a, T> {
    fn pack<S: Stored<Real = T>>(
        shape: AttentionShape,
        (kv, columns): (&[S], Columns),
        sequence: usize,
        group: usize,
        mut scratch: &'a mut [T],
    ) -> Self {
        let s = padded(shape.seq_len);
        let [d, width] = [shape.head_dim, shape.value_dim].map(padded);
        let q = take(&mut scratch, shape.packed_queries() * d);
        let k = take(&mut scratch, transposed(shape.seq_len, shape.head_dim));
        let v = take(&mut scratch, s * width);
        transpose_runs(shape.runs(columns, Side::Key, sequence, group), kv, k);
        copy_runs(shape.runs(columns, Side::Value, sequence, group), kv, v);
        let tile = Tile {
            p: take(&mut scratch, TILE * TILE),
            out: take(&mut scratch, TILE * width),
            max: take(&mut scratch, TILE),
            sum: take(&mut scratch, TILE),
        };
        Group { shape, q, k, v, tile }
    }

    /// Packs the queries of a head.
    fn queries<S: Stored<Real = T>>(&mut self, sequence: usize, head: usize, qkv: &[S]) {
        let factor = T::from_f64(self.shape.scale) / T::from_f64(self.shape.head_dim as f64).sqrt();
        copy_chunks(self.shape, self.shape.query_block(sequence, head), qkv, factor, self.q);
    }

    /// Calls `write(token, values, log_sum_exp)` for every local token of the head.
    fn run(&mut self, dropout: Option<(T, Keep<'_>)>, mut write: impl FnMut(usize, &[T], T)) {
        let v = padded(self.shape.value_dim);
        for queries in self.shape.tiles() {
            self.tile.out.fill(T::ZERO);
            self.tile.max.fill(T::NEG_INFINITY);
            self.tile.sum.fill(T::ZERO);
            for first_key in self.shape.key_tiles(queries) {
                self.step(queries, first_key, dropout);
            }
            for (i, out) in self.tile.out.chunks_exact_mut(v).enumerate().take(queries.count) {
                let inverse = T::ONE / self.tile.sum[i];
                out.iter_mut().for_each(|x| *x *= inverse);
                let log = T::from_f64(self.tile.sum[i].to_f64().ln());
                let lse = self.tile.max[i] + log;
                write(queries.token + i, &out[..self.shape.value_dim], lse);
            }
        }
    }

    /// Adds one tile of keys to one tile of queries.
    fn step(&mut self, queries: Queries, first_key: usize, dropout: Option<(T, Keep<'_>)>) {
        let s = padded(self.shape.seq_len);
        let [d, v] = [self.shape.head_dim, self.shape.value_dim].map(padded);
        let rows = queries.rows;
        let cols = TILE.min(s - first_key);
        let q = Operand::rows(&self.q[queries.packed * d..], d);
        let k = &self.k[first_key * self.shape.head_dim..];
        self.tile.p.fill(T::ZERO);
        product((rows, cols, self.shape.head_dim), q, k, TILE, self.tile.p, TILE);
        if let Some(cap) = self.shape.cap {
            let p = &mut *self.tile.p;
            let cap = T::from_f64(cap);
            vectorised(
                #[inline(always)]
                || p.chunks_exact_mut(TILE).take(queries.count).for_each(|p| soften(&mut p[..cols], cap)),
            );
        }
        let visible = |i: usize| {
            let query = queries.position + i;
            let visible = self.shape.visible(query, first_key).min(cols);
            self.shape.passed(query, first_key).min(visible)..visible
        };
        self.tile.softmax(queries.count, cols, v, visible);
        let Tile { p, out, .. } = &mut self.tile;
        if let Some((factor, keep)) = dropout {
            for (i, p) in p.chunks_exact_mut(TILE).enumerate().take(queries.count) {
                let visible = visible(i);
                for (key, p) in visible.clone().zip(&mut p[visible]) {
                    let kept = keep(queries.position + i, first_key + key);
                    *p = if kept { *p * factor } else { T::ZERO };
                }
            }
        }
        let p = Operand::rows(p, TILE);
        product((rows, v, cols), p, &self.v[first_key * v..], v, out, v);
    }
}

impl<T: Element> Tile<'_, T> {
    /// Turns the first `rows` queries' scores into exponentials relative to the largest score so
    /// far, zero where a key is not visible, and rescales what was summed before.
    fn softmax(&mut self, rows: usize, cols: usize, v: usize, visible: impl Fn(usize) -> Range<usize>) {
        vectorised(
            #[inline(always)]
            || {
                let rows = self.p.chunks_exact_mut(TILE).zip(self.out.chunks_exact_mut(v)).take(rows);
                for (i, (p, out)) in rows.enumerate() {
                    let p = &mut p[..cols];
                    let visible = visible(i);
                    p[visible.end..].fill(T::NEG_INFINITY);
                    p[..visible.start].fill(T::NEG_INFINITY);
                    if visible.is_empty() {
                        p.fill(T::ZERO);
                        continue;
                    }
                    let max = self.max[i].larger(largest(p));
                    p.iter_mut().for_each(|x| *x = (*x - max).exp());
                    let rescale = (self.max[i] - max).exp();
                    self.sum[i] = rescale.mul_add(self.sum[i], sum(p, |x| x));
                    out.iter_mut().for_each(|x| *x *= rescale);
                    self.max[i] = max;
                }
            },
        );
    }
}
