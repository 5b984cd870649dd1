//! Attention, backward: probabilities are recomputed from the saved logarithms.
//!
//! Per tile, with P the probabilities, F the dropout factors and D = rowsum(dout out):
//! dV += (P F)^T dout, dP = dout V^T, dS = P (dP F - D), dQ += dS K, dK += dS^T Q.

use super::chunks::{Columns, Queries, Side};
use super::forward::Keep;
use super::pack::{copy_chunks, copy_runs, padded, take, transpose_runs, transposed};
use super::tile::{Operand, TILE, product};
use super::{AttentionDropout, AttentionShape};
use crate::cap::{slope, soften};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::dot;
use crate::pool::{Disjoint, Pool};
use crate::stored::Stored;

/// dqkv (the layout of `qkv`) = the gradient of [`super::attention_forward`], given its results
/// and dout, the gradient of `out`.
///
/// With `keys_values`, the `kv` of all parts and dkv (its layout): dqkv's queries = their
/// gradient, its other columns stay, and dkv = what this part's queries contribute to the
/// gradient of all keys and values, zero where they see none.
pub fn attention_backward<S: Stored>(
    pool: &Pool,
    shape: AttentionShape,
    qkv: &[S],
    keys_values: Option<(&[S], &mut [S])>,
    out: &[S],
    log_sum_exp: &[S::Real],
    dout: &[S],
    dqkv: &mut [S],
    dropout: Option<AttentionDropout<'_, S::Real>>,
) {
    shape.check(qkv.len(), out.len(), log_sum_exp.len());
    shape.check(dqkv.len(), dout.len(), log_sum_exp.len());
    let columns = shape.columns(keys_values.as_ref().map(|(kv, _)| kv.len()));
    let (kv, dkv) = keys_values.unzip();
    let kv = kv.unwrap_or(qkv);
    assert!(dkv.as_ref().is_none_or(|dkv| dkv.len() == kv.len()), "dkv of {shape:?}");
    let dqkv = Disjoint::new(dqkv);
    let dkv = dkv.map(Disjoint::new);
    let dkv = dkv.as_ref().unwrap_or(&dqkv);
    let s = padded(shape.seq_len);
    let queries = shape.packed_queries();
    let [d, v] = [shape.head_dim, shape.value_dim].map(padded);
    let matrices = 2 * (s + queries) * d + (s + queries) * v;
    let scratch = matrices + transposed(shape.seq_len, shape.pair_cols()) + 2 * (queries + TILE * TILE);
    pool.each(shape.units(), |(sequence, group)| {
        S::Real::with_scratch(scratch, |scratch| {
            let mut unit = Group::pack(shape, sequence, group, (kv, columns), scratch);
            for head in shape.heads_of(group) {
                let dropout =
                    dropout.map(|(factor, keep)| (factor, move |query, key| keep(sequence, head, query, key)));
                let dropout = dropout.as_ref().map(|(factor, keep)| (*factor, keep as Keep<'_>));
                unit.head(sequence, head, qkv, (out, dout, log_sum_exp));
                unit.run(dropout);
                let block = shape.query_block(sequence, head);
                for chunk in shape.chunks() {
                    let block = block.part(chunk.token, chunk.count);
                    // SAFETY: this unit alone writes its heads' columns of its sequence.
                    unsafe { block.write(&dqkv, &unit.dq[chunk.packed * d..], unit.scale) };
                }
            }
            for (side, gradient, cols) in [(Side::Key, &*unit.dk, d), (Side::Value, &*unit.dv, v)] {
                for (first, run) in shape.runs(columns, side, sequence, group) {
                    // SAFETY: as above.
                    unsafe { run.write(dkv, &gradient[first * cols..], S::Real::ONE) };
                }
            }
        });
    });
}

/// One sequence's group of heads: packed operands of one of them, and the gradients so far, of keys
/// and values over all of them.
struct Group<'a, T> {
    shape: AttentionShape,
    /// 1 / sqrt(d), which `q` contains.
    scale: T,
    /// [packed queries, d]
    q: &'a mut [T],
    /// [s, d]
    k: &'a mut [T],
    /// By tile [s / TILE, d, TILE]
    k_transposed: &'a mut [T],
    /// By tile [s / TILE, v, TILE]
    v_transposed: &'a mut [T],
    /// [packed queries, v]
    dout: &'a mut [T],
    /// [packed queries, d]
    dq: &'a mut [T],
    /// [s, d]
    dk: &'a mut [T],
    /// [s, v]
    dv: &'a mut [T],
    /// D `[local tokens]`
    row_dots: &'a mut [T],
    /// `[local tokens]`
    log_sum_exp: &'a mut [T],
    /// P, then P F [TILE, TILE]
    p: &'a mut [T],
    /// dP, then dS [TILE, TILE]
    ds: &'a mut [T],
}

impl<'a, T: Element> Group<'a, T> {
    fn pack<S: Stored<Real = T>>(
        shape: AttentionShape,
        sequence: usize,
        group: usize,
        (kv, columns): (&[S], Columns),
        mut scratch: &'a mut [T],
    ) -> Self {
        let s = padded(shape.seq_len);
        let queries = shape.packed_queries();
        let [d, v] = [shape.head_dim, shape.value_dim].map(padded);
        let tokens = shape.context.tokens(shape.seq_len);
        let mut matrix = |rows: usize, cols: usize| take(&mut scratch, rows * cols);
        let q = matrix(queries, d);
        let k = matrix(s, d);
        let dout = matrix(queries, v);
        let dq = matrix(queries, d);
        let dk = matrix(s, d);
        let dv = matrix(s, v);
        let mut transpose = |cols: usize| take(&mut scratch, transposed(shape.seq_len, cols));
        let k_transposed = transpose(shape.head_dim);
        let v_transposed = transpose(shape.value_dim);
        let scale = T::from_f64(shape.scale) / T::from_f64(shape.head_dim as f64).sqrt();
        copy_runs(shape.runs(columns, Side::Key, sequence, group), kv, k);
        transpose_runs(shape.runs(columns, Side::Key, sequence, group), kv, k_transposed);
        transpose_runs(shape.runs(columns, Side::Value, sequence, group), kv, v_transposed);
        [&mut *dk, &mut *dv].into_iter().for_each(|x| x.fill(T::ZERO));
        let row_dots = take(&mut scratch, tokens);
        let log_sum_exp = take(&mut scratch, tokens);
        let p = take(&mut scratch, TILE * TILE);
        let ds = take(&mut scratch, TILE * TILE);
        Group { shape, scale, q, k, k_transposed, v_transposed, dout, dq, dk, dv, row_dots, log_sum_exp, p, ds }
    }

    /// Packs what belongs to a head; `saved` are out, dout and `log_sum_exp`.
    fn head<S: Stored<Real = T>>(&mut self, sequence: usize, head: usize, qkv: &[S], saved: (&[S], &[S], &[T])) {
        let shape = self.shape;
        let (out, dout, log_sum_exp) = saved;
        copy_chunks(shape, shape.query_block(sequence, head), qkv, self.scale, self.q);
        let block = shape.out_block(sequence, head);
        copy_chunks(shape, block, dout, T::ONE, self.dout);
        self.dq.fill(T::ZERO);
        let row_dots = &mut *self.row_dots;
        vectorised(
            #[inline(always)]
            || {
                for (row, to) in row_dots.iter_mut().enumerate() {
                    *to = dot(block.row(out, row), block.row(dout, row));
                }
            },
        );
        // The head's column of `log_sum_exp` [rows, heads].
        let rows = log_sum_exp.chunks_exact(shape.heads).skip(sequence * self.log_sum_exp.len());
        self.log_sum_exp.iter_mut().zip(rows).for_each(|(to, row)| *to = row[head]);
    }

    fn run(&mut self, dropout: Option<(T, Keep<'_>)>) {
        for queries in self.shape.tiles() {
            for first_key in self.shape.key_tiles(queries) {
                self.tile(queries, first_key, dropout);
            }
        }
    }

    fn tile(&mut self, queries: Queries, first_key: usize, dropout: Option<(T, Keep<'_>)>) {
        let AttentionShape { seq_len, head_dim, value_dim, .. } = self.shape;
        let s = padded(seq_len);
        let d = padded(head_dim);
        let v = padded(value_dim);
        let rows = queries.rows;
        let cols = TILE.min(s - first_key);
        let at_query = queries.packed * d;
        let at_key = first_key * d;
        let at_result = queries.packed * v;
        let at_value = first_key * v;

        self.p.fill(T::ZERO);
        self.ds.fill(T::ZERO);
        let keys = &self.k_transposed[first_key * head_dim..];
        let values = &self.v_transposed[first_key * value_dim..];
        let q = Operand::rows(&self.q[at_query..], d);
        let dout = Operand::rows(&self.dout[at_result..], v);
        product((rows, cols, head_dim), q, keys, TILE, self.p, TILE);
        product((rows, cols, value_dim), dout, values, TILE, self.ds, TILE);
        self.scores(queries, first_key, cols, dropout);
        let q = &self.q[at_query..];
        let k = &self.k[at_key..];
        let dout = &self.dout[at_result..];
        product((cols, v, rows), Operand::columns(self.p, TILE), dout, v, &mut self.dv[at_value..], v);
        product((cols, d, rows), Operand::columns(self.ds, TILE), q, d, &mut self.dk[at_key..], d);
        product((rows, d, cols), Operand::rows(self.ds, TILE), k, d, &mut self.dq[at_query..], d);
    }

    /// Scores and dP of a tile become P F and dS.
    fn scores(&mut self, queries: Queries, first_key: usize, cols: usize, dropout: Option<(T, Keep<'_>)>) {
        let cap = self.shape.cap.map(T::from_f64);
        let mut slopes = [T::ZERO; TILE];
        let tiles = self.p.chunks_exact_mut(TILE).zip(self.ds.chunks_exact_mut(TILE)).take(queries.rows);
        vectorised(
            #[inline(always)]
            || {
                for (i, (p, ds)) in tiles.enumerate() {
                    let p = &mut p[..cols];
                    let ds = &mut ds[..cols];
                    if i >= queries.count {
                        p.fill(T::ZERO);
                        ds.fill(T::ZERO);
                        continue;
                    }
                    let token = queries.token + i;
                    let query = queries.position + i;
                    let visible = self.shape.visible(query, first_key).min(cols);
                    let passed = self.shape.passed(query, first_key).min(visible);
                    if let Some(cap) = cap {
                        soften(p, cap);
                        slopes[..cols].copy_from_slice(p);
                    }
                    p[visible..].fill(T::NEG_INFINITY);
                    p[..passed].fill(T::NEG_INFINITY);
                    let lse = self.log_sum_exp[token];
                    let dot = self.row_dots[token];
                    if let Some((factor, keep)) = dropout {
                        for (key, (p, ds)) in (0..).zip(p.iter_mut().zip(&mut *ds)) {
                            let kept = key < visible && keep(query, first_key + key);
                            let factor = if kept { factor } else { T::ZERO };
                            let probability = (*p - lse).exp();
                            *ds = probability * (*ds * factor - dot);
                            *p = probability * factor;
                        }
                    } else {
                        for (p, ds) in p.iter_mut().zip(&mut *ds) {
                            *p = (*p - lse).exp();
                            *ds = *p * (*ds - dot);
                        }
                    }
                    if let Some(cap) = cap {
                        ds.iter_mut().zip(&slopes).for_each(|(ds, capped)| *ds *= slope(*capped, cap));
                    }
                }
            },
        );
    }
}
