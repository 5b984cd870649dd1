//! Attention, backward: probabilities are recomputed from the saved logarithms.
//!
//! Per tile, with P the probabilities, F the dropout factors and D = rowsum(dout out):
//! dV += (P F)^T dout, dP = dout V^T, dS = P (dP F - D), dQ += dS K, dK += dS^T Q.

use super::forward::Keep;
use super::pack::{padded, take, transposed};
use super::tile::{Operand, TILE, product};
use super::{AttentionDropout, AttentionShape};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::dot;
use crate::pool::{Disjoint, Pool};

/// dqkv (the layout of `qkv`) = the gradient of [`super::attention_forward`], given its results
/// and dout, the gradient of `out`.
pub fn attention_backward<T: Element>(
    pool: &Pool,
    shape: AttentionShape,
    qkv: &[T],
    out: &[T],
    log_sum_exp: &[T],
    dout: &[T],
    dqkv: &mut [T],
    dropout: Option<AttentionDropout<'_, T>>,
) {
    shape.check(qkv.len(), out.len(), log_sum_exp.len());
    shape.check(dqkv.len(), dout.len(), log_sum_exp.len());
    let dqkv = Disjoint::new(dqkv);
    let (s, d) = (padded(shape.seq_len), padded(shape.head_dim));
    let scratch = 6 * s * d + 2 * transposed(shape.seq_len, shape.head_dim) + 2 * s + 2 * TILE * TILE;
    pool.each(shape.units(), |(sequence, head)| {
        T::with_scratch(scratch, |scratch| {
            let dropout = dropout.map(|(factor, keep)| (factor, move |query, key| keep(sequence, head, query, key)));
            let dropout = dropout.as_ref().map(|(factor, keep)| (*factor, keep as Keep<'_>));
            let mut unit = Head::pack(shape, sequence, head, qkv, out, dout, scratch);
            unit.saved(sequence, head, log_sum_exp);
            unit.run(dropout);
            let gradients = [(&*unit.dq, unit.scale), (&*unit.dk, T::ONE), (&*unit.dv, T::ONE)];
            for (part, (gradient, factor)) in gradients.into_iter().enumerate() {
                let block = shape.qkv_block(sequence, head, part);
                // SAFETY: this unit alone writes its head's columns of its sequence.
                unsafe { block.write(&dqkv, gradient, factor) };
            }
        });
    });
}

/// One sequence's head: packed operands and the gradients so far.
struct Head<'a, T> {
    shape: AttentionShape,
    /// 1 / sqrt(d), which `q` contains.
    scale: T,
    /// [s, d]
    q: &'a mut [T],
    /// [s, d]
    k: &'a mut [T],
    /// By tile [s / TILE, d, TILE]
    k_transposed: &'a mut [T],
    /// By tile [s / TILE, d, TILE]
    v_transposed: &'a mut [T],
    /// [s, d]
    dout: &'a mut [T],
    /// [s, d]
    dq: &'a mut [T],
    /// [s, d]
    dk: &'a mut [T],
    /// [s, d]
    dv: &'a mut [T],
    /// D `[s]`
    row_dots: &'a mut [T],
    /// `[s]`
    log_sum_exp: &'a mut [T],
    /// P, then P F [TILE, TILE]
    p: &'a mut [T],
    /// dP, then dS [TILE, TILE]
    ds: &'a mut [T],
}

impl<'a, T: Element> Head<'a, T> {
    fn pack(
        shape: AttentionShape,
        sequence: usize,
        head: usize,
        qkv: &[T],
        out: &[T],
        dout: &[T],
        mut scratch: &'a mut [T],
    ) -> Self {
        let (s, d) = (padded(shape.seq_len), padded(shape.head_dim));
        let mut matrix = || take(&mut scratch, s * d);
        let (q, k, dout_packed, dq, dk, dv) = (matrix(), matrix(), matrix(), matrix(), matrix(), matrix());
        let mut transpose = || take(&mut scratch, transposed(shape.seq_len, shape.head_dim));
        let (k_transposed, v_transposed) = (transpose(), transpose());
        let scale = T::ONE / T::from_f64(shape.head_dim as f64).sqrt();
        shape.qkv_block(sequence, head, 0).copy(qkv, scale, q);
        shape.qkv_block(sequence, head, 1).copy(qkv, T::ONE, k);
        shape.qkv_block(sequence, head, 1).transpose(qkv, k_transposed);
        shape.qkv_block(sequence, head, 2).transpose(qkv, v_transposed);
        let block = shape.out_block(sequence, head);
        block.copy(dout, T::ONE, dout_packed);
        [&mut *dq, &mut *dk, &mut *dv].into_iter().for_each(|x| x.fill(T::ZERO));
        let row_dots = take(&mut scratch, s);
        vectorised(
            #[inline(always)]
            || {
                for (row, to) in row_dots.iter_mut().enumerate().take(shape.seq_len) {
                    *to = dot(block.row(out, row), block.row(dout, row));
                }
            },
        );
        let log_sum_exp = take(&mut scratch, s);
        let (p, ds) = (take(&mut scratch, TILE * TILE), take(&mut scratch, TILE * TILE));
        let dout = dout_packed;
        Head { shape, scale, q, k, k_transposed, v_transposed, dout, dq, dk, dv, row_dots, log_sum_exp, p, ds }
    }

    /// Copies the head's column of `log_sum_exp` [rows, heads].
    fn saved(&mut self, sequence: usize, head: usize, log_sum_exp: &[T]) {
        let rows = log_sum_exp.chunks_exact(self.shape.heads).skip(sequence * self.shape.seq_len);
        self.log_sum_exp.iter_mut().zip(rows).for_each(|(to, row)| *to = row[head]);
    }

    fn run(&mut self, dropout: Option<(T, Keep<'_>)>) {
        for first_query in (0..self.shape.seq_len).step_by(TILE) {
            let last_query = self.shape.seq_len.min(first_query + TILE) - 1;
            for first_key in (0..self.shape.visible(last_query, 0)).step_by(TILE) {
                self.tile(first_query, first_key, dropout);
            }
        }
    }

    fn tile(&mut self, first_query: usize, first_key: usize, dropout: Option<(T, Keep<'_>)>) {
        let (s, d) = (padded(self.shape.seq_len), padded(self.shape.head_dim));
        let head_dim = self.shape.head_dim;
        let (rows, cols) = (TILE.min(s - first_query), TILE.min(s - first_key));
        let (at_query, at_key) = (first_query * d, first_key * d);

        self.p.fill(T::ZERO);
        self.ds.fill(T::ZERO);
        let (k, v) = (&self.k_transposed[first_key * head_dim..], &self.v_transposed[first_key * head_dim..]);
        let (q, dout) = (Operand::rows(&self.q[at_query..], d), Operand::rows(&self.dout[at_query..], d));
        product((rows, cols, head_dim), q, k, TILE, self.p, TILE);
        product((rows, cols, head_dim), dout, v, TILE, self.ds, TILE);
        self.scores(first_query, first_key, rows, cols, dropout);
        let (q, k, dout) = (&self.q[at_query..], &self.k[at_key..], &self.dout[at_query..]);
        product((cols, d, rows), Operand::columns(self.p, TILE), dout, d, &mut self.dv[at_key..], d);
        product((cols, d, rows), Operand::columns(self.ds, TILE), q, d, &mut self.dk[at_key..], d);
        product((rows, d, cols), Operand::rows(self.ds, TILE), k, d, &mut self.dq[at_query..], d);
    }

    /// Scores and dP of a tile become P F and dS.
    fn scores(
        &mut self,
        first_query: usize,
        first_key: usize,
        rows: usize,
        cols: usize,
        dropout: Option<(T, Keep<'_>)>,
    ) {
        let tiles = self.p.chunks_exact_mut(TILE).zip(self.ds.chunks_exact_mut(TILE)).take(rows);
        vectorised(
            #[inline(always)]
            || {
                for (query, (p, ds)) in (first_query..).zip(tiles) {
                    let (p, ds) = (&mut p[..cols], &mut ds[..cols]);
                    if query >= self.shape.seq_len {
                        p.fill(T::ZERO);
                        ds.fill(T::ZERO);
                        continue;
                    }
                    let visible = self.shape.visible(query, first_key).min(cols);
                    p[visible..].fill(T::NEG_INFINITY);
                    let (lse, dot) = (self.log_sum_exp[query], self.row_dots[query]);
                    if let Some((factor, keep)) = dropout {
                        for (key, (p, ds)) in (0..).zip(p.iter_mut().zip(ds)) {
                            let kept = key < visible && keep(query, first_key + key);
                            let factor = if kept { factor } else { T::ZERO };
                            let probability = (*p - lse).exp();
                            *ds = probability * (*ds * factor - dot);
                            *p = probability * factor;
                        }
                    } else {
                        for (p, ds) in p.iter_mut().zip(ds) {
                            *p = (*p - lse).exp();
                            *ds = *p * (*ds - dot);
                        }
                    }
                }
            },
        );
    }
}
