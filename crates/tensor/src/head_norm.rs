//! Norms of the queries or the keys of all heads, each over its own columns: layer norm and RMS norm.
//!
//! Letters: d = head dimension; `qkv` is [rows, groups * ((heads + 1) * d + v)], of each group the
//! queries of `heads` heads, their key and their value. xhat = (x - mean) rstd, where an RMS norm has mean 0;
//! y = xhat gamma + beta. Every head is whole on its rank, so nothing is reduced between ranks.

use std::ops::Range;

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{block_rows, column_sums, sum};
use crate::pool::Pool;
use crate::stored::Stored;

/// Which columns of `qkv` are normed, and how.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeadNorm {
    /// Groups on this rank.
    pub groups: usize,
    /// Queries of a group.
    pub heads: usize,
    /// Columns of a query and of a key, d.
    pub head_dim: usize,
    /// Columns of a value, v.
    pub value_dim: usize,
    /// The key of each group; else its queries.
    pub keys: bool,
    /// Whether the mean is taken off: layer norm.
    pub centered: bool,
    /// Added to the mean square.
    pub eps: f64,
}

impl HeadNorm {
    /// Columns of `qkv`.
    pub fn cols(&self) -> usize {
        self.groups * self.group()
    }

    /// Columns of a group.
    fn group(&self) -> usize {
        (self.heads + 1) * self.head_dim + self.value_dim
    }

    /// The normed columns of a group.
    fn normed(&self) -> Range<usize> {
        let queries = self.heads * self.head_dim;
        if self.keys { queries..queries + self.head_dim } else { 0..queries }
    }

    /// Elements that are normed in so many rows.
    pub fn elements(&self, rows: usize) -> usize {
        rows * self.groups * self.normed().len()
    }

    /// Mean and 1 / deviation of a head.
    #[inline(always)]
    fn statistics<S: Stored>(&self, x: &[S]) -> (S::Real, S::Real) {
        let width = S::Real::from_f64(self.head_dim as f64);
        let mean = if self.centered { sum(x, |x| x) / width } else { S::Real::ZERO };
        let square = sum(x, |x| (x - mean) * (x - mean)) / width;
        (mean, S::Real::ONE / (square + S::Real::from_f64(self.eps)).sqrt())
    }
}

/// x (`qkv`) normed in place by gamma `[d]` and, of a layer norm, beta `[d]`; returns how many elements.
pub fn head_norm_forward<S: Stored>(
    pool: &Pool,
    norm: HeadNorm,
    gamma: &[S::Real],
    beta: Option<&[S::Real]>,
    x: &mut [S],
) -> usize {
    let cols = norm.cols();
    let d = norm.head_dim;
    assert_eq!((gamma.len(), beta.map_or(d, <[S::Real]>::len)), (d, d));
    if cols == 0 {
        return 0;
    }
    let rows = x.len() / cols;
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(x.chunks_mut(piece * cols), |x| {
        vectorised(
            #[inline(always)]
            || {
                for group in x.chunks_exact_mut(norm.group()) {
                    for head in group[norm.normed()].chunks_exact_mut(d) {
                        let (mean, rstd) = norm.statistics(head);
                        let scaled = |x: &S, g: &S::Real| (x.widen() - mean) * rstd * *g;
                        let columns = head.iter_mut().zip(gamma);
                        match beta {
                            Some(beta) => columns.zip(beta).for_each(|((x, g), b)| *x = S::rounded(scaled(x, g) + *b)),
                            None => columns.for_each(|(x, g)| *x = S::rounded(scaled(x, g))),
                        }
                    }
                }
            },
        );
    });
    norm.elements(rows)
}

/// dy (of the normed columns of `qkv`) becomes dx in place, given x before the norm; dgamma `[d]` and, of a layer norm,
/// dbeta `[d]` = (or += if `accumulate`) the sums over rows and heads of dy xhat and of dy. Returns how many elements.
pub fn head_norm_backward<S: Stored>(
    pool: &Pool,
    norm: HeadNorm,
    x: &[S],
    gamma: &[S::Real],
    dy: &mut [S],
    dgamma: &mut [S::Real],
    dbeta: Option<&mut [S::Real]>,
    accumulate: bool,
) -> usize {
    let cols = norm.cols();
    let d = norm.head_dim;
    assert_eq!((gamma.len(), x.len()), (d, dy.len()));
    if cols == 0 {
        return 0;
    }
    let rows = x.len() / cols;
    let piece = block_rows(rows);
    let blocks = x.chunks(piece * cols).zip(dy.chunks_mut(piece * cols));
    let mut outs: Vec<&mut [S::Real]> = [Some(dgamma), dbeta].into_iter().flatten().collect();
    column_sums(pool, d, blocks, &mut outs, accumulate, |(x, dy), sums| {
        let (dgamma, dbeta) = sums.split_at_mut(d);
        vectorised(
            #[inline(always)]
            || {
                let groups = x.chunks_exact(norm.group()).zip(dy.chunks_exact_mut(norm.group()));
                for (x, dy) in groups {
                    let heads = x[norm.normed()].chunks_exact(d).zip(dy[norm.normed()].chunks_exact_mut(d));
                    for (x, dy) in heads {
                        head_gradient(norm, x, gamma, dy, dgamma, dbeta);
                    }
                }
            },
        );
    });
    norm.elements(rows)
}

/// One head of [`head_norm_backward`]; dbeta is empty of an RMS norm.
#[inline(always)]
fn head_gradient<S: Stored>(
    norm: HeadNorm,
    x: &[S],
    gamma: &[S::Real],
    dy: &mut [S],
    dgamma: &mut [S::Real],
    dbeta: &mut [S::Real],
) {
    let (mean, rstd) = norm.statistics(x);
    let width = S::Real::from_f64(norm.head_dim as f64);
    dbeta.iter_mut().zip(&*dy).for_each(|(sum, dy)| *sum += dy.widen());
    let mut of_d = S::Real::ZERO;
    let mut of_d_xhat = S::Real::ZERO;
    for (((x, g), dy), dgamma) in x.iter().zip(gamma).zip(&*dy).zip(dgamma) {
        let xhat = (x.widen() - mean) * rstd;
        *dgamma += dy.widen() * xhat;
        let d = dy.widen() * *g;
        of_d += d;
        of_d_xhat += d * xhat;
    }
    let mean_d = if norm.centered { of_d / width } else { S::Real::ZERO };
    for ((x, g), dy) in x.iter().zip(gamma).zip(dy) {
        let xhat = (x.widen() - mean) * rstd;
        *dy = S::rounded((dy.widen() * *g - mean_d - xhat * (of_d_xhat / width)) * rstd);
    }
}
