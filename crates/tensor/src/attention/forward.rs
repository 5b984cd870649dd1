//! Attention, forward: a running maximum and sum per query while its tiles of keys pass.

use super::pack::{padded, take, transposed};
use super::tile::{Operand, TILE, product};
use super::{AttentionDropout, AttentionShape};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{largest, sum};
use crate::pool::{Disjoint, Pool};

/// out = softmax(q k^T / sqrt(d)) v for each sequence and head; log_sum_exp [rows, heads] = the
/// logarithm of each softmax' denominator, which the backward pass needs.
pub fn attention_forward<T: Element>(
    pool: &Pool,
    shape: AttentionShape,
    qkv: &[T],
    out: &mut [T],
    log_sum_exp: &mut [T],
    dropout: Option<AttentionDropout<'_, T>>,
) {
    shape.check(qkv.len(), out.len(), log_sum_exp.len());
    let (out, log_sum_exp) = (Disjoint::new(out), Disjoint::new(log_sum_exp));
    let (s, d) = (padded(shape.seq_len), padded(shape.head_dim));
    let scratch = 2 * s * d + transposed(shape.seq_len, shape.head_dim) + TILE * (TILE + d + 2);
    pool.each(shape.units(), |(sequence, head)| {
        T::with_scratch(scratch, |scratch| {
            let dropout = dropout.map(|(factor, keep)| (factor, move |query, key| keep(sequence, head, query, key)));
            let dropout = dropout.as_ref().map(|(factor, keep)| (*factor, keep as Keep<'_>));
            let block = shape.out_block(sequence, head);
            let head = Head::pack(shape, qkv, sequence, head, scratch);
            head.run(dropout, |row, values, lse| {
                let first = block.start + row * block.stride;
                // SAFETY: this unit alone writes its rows of its head's columns.
                unsafe {
                    out.part(first, shape.head_dim).copy_from_slice(values);
                    *log_sum_exp.at(first / shape.head_dim) = lse;
                }
            });
        });
    });
}

/// Whether the probability at (query, key) survives.
pub(super) type Keep<'a> = &'a dyn Fn(usize, usize) -> bool;

/// One sequence's head, packed.
struct Head<'a, T> {
    shape: AttentionShape,
    /// Queries [s, d], scaled.
    q: &'a [T],
    /// Keys, transposed by tile [s / TILE, d, TILE].
    k: &'a [T],
    /// Values [s, d].
    v: &'a [T],
    tile: Tile<'a, T>,
}

/// The state of one tile of queries.
struct Tile<'a, T> {
    /// Scores, then probabilities [TILE, TILE].
    p: &'a mut [T],
    /// The weighted sum of values so far [TILE, d].
    out: &'a mut [T],
    /// Each query's largest score so far.
    max: &'a mut [T],
    /// Each query's denominator so far.
    sum: &'a mut [T],
}

impl<'a, T: Element> Head<'a, T> {
    fn pack(shape: AttentionShape, qkv: &[T], sequence: usize, head: usize, mut scratch: &'a mut [T]) -> Self {
        let (s, d) = (padded(shape.seq_len), padded(shape.head_dim));
        let q = take(&mut scratch, s * d);
        let k = take(&mut scratch, transposed(shape.seq_len, shape.head_dim));
        let v = take(&mut scratch, s * d);
        let factor = T::ONE / T::from_f64(shape.head_dim as f64).sqrt();
        shape.qkv_block(sequence, head, 0).copy(qkv, factor, q);
        shape.qkv_block(sequence, head, 1).transpose(qkv, k);
        shape.qkv_block(sequence, head, 2).copy(qkv, T::ONE, v);
        let tile = Tile {
            p: take(&mut scratch, TILE * TILE),
            out: take(&mut scratch, TILE * d),
            max: take(&mut scratch, TILE),
            sum: take(&mut scratch, TILE),
        };
        Head { shape, q, k, v, tile }
    }

    /// Calls `write(row, values, log_sum_exp)` for every row of the sequence.
    fn run(mut self, dropout: Option<(T, Keep<'_>)>, mut write: impl FnMut(usize, &[T], T)) {
        let (s, d) = (padded(self.shape.seq_len), padded(self.shape.head_dim));
        for first_query in (0..self.shape.seq_len).step_by(TILE) {
            let rows = TILE.min(s - first_query);
            self.tile.out.fill(T::ZERO);
            self.tile.max.fill(T::NEG_INFINITY);
            self.tile.sum.fill(T::ZERO);
            let last_query = self.shape.seq_len.min(first_query + TILE) - 1;
            let keys = self.shape.visible(last_query, 0);
            for first_key in (0..keys).step_by(TILE) {
                self.step(first_query, rows, first_key, dropout);
            }
            for (i, out) in self.tile.out.chunks_exact_mut(d).enumerate().take(rows) {
                if first_query + i < self.shape.seq_len {
                    let inverse = T::ONE / self.tile.sum[i];
                    out.iter_mut().for_each(|x| *x *= inverse);
                    let log = T::from_f64(self.tile.sum[i].to_f64().ln());
                    let lse = self.tile.max[i] + log;
                    write(first_query + i, &out[..self.shape.head_dim], lse);
                }
            }
        }
    }

    /// Adds one tile of keys to one tile of queries.
    fn step(&mut self, first_query: usize, rows: usize, first_key: usize, dropout: Option<(T, Keep<'_>)>) {
        let (s, d) = (padded(self.shape.seq_len), padded(self.shape.head_dim));
        let cols = TILE.min(s - first_key);
        let q = Operand::rows(&self.q[first_query * d..], d);
        let k = &self.k[first_key * self.shape.head_dim..];
        self.tile.p.fill(T::ZERO);
        product((rows, cols, self.shape.head_dim), q, k, TILE, self.tile.p, TILE);
        let real = rows.min(self.shape.seq_len - first_query);
        let visible = |i: usize| self.shape.visible(first_query + i, first_key).min(cols);
        self.tile.softmax(real, cols, d, visible);
        let Tile { p, out, .. } = &mut self.tile;
        if let Some((factor, keep)) = dropout {
            for (i, p) in p.chunks_exact_mut(TILE).enumerate().take(real) {
                for (key, p) in p[..visible(i)].iter_mut().enumerate() {
                    let kept = keep(first_query + i, first_key + key);
                    *p = if kept { *p * factor } else { T::ZERO };
                }
            }
        }
        let p = Operand::rows(p, TILE);
        product((rows, d, cols), p, &self.v[first_key * d..], d, out, d);
    }
}

impl<T: Element> Tile<'_, T> {
    /// Turns the first `rows` queries' scores into exponentials relative to the largest score so
    /// far, zero where a key is not visible, and rescales what was summed before.
    fn softmax(&mut self, rows: usize, cols: usize, d: usize, visible: impl Fn(usize) -> usize) {
        vectorised(
            #[inline(always)]
            || {
                let rows = self.p.chunks_exact_mut(TILE).zip(self.out.chunks_exact_mut(d)).take(rows);
                for (i, (p, out)) in rows.enumerate() {
                    let (p, visible) = (&mut p[..cols], visible(i));
                    p[visible..].fill(T::NEG_INFINITY);
                    if visible == 0 {
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
