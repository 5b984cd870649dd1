//! Products of 16-bit operands on any processor: blocks are widened into scratch and multiplied by the crates `gemm-f32` and `gemm-f64`.
//!
//! Letters: C [m, n] = op(A) op(B), contracted over k.

use crate::dispatch::vectorised;
use crate::matmul::{Transpose, each_piece};
use crate::pool::{Disjoint, Pool};
use crate::product::{Product, blocks, depth};
use crate::shape::ProductShape;
use crate::stored::{Stored, widen_all};
use crate::turn::turn_widened;
use gemm_common::Parallelism;
use std::ops::Range;

/// Rows and columns of a block of C, a multiple of 64.
const BLOCK: usize = 512;

/// [`crate::matmul`] of operands that are not stored as they are computed with.
pub(crate) fn widened_product<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: ProductShape,
    a: &[S],
    b: &[S],
    c: &mut [C],
    accumulate: bool,
) {
    let ProductShape { m, n, .. } = shape;
    shape.check(a.len(), b.len(), c.len());
    let c = Disjoint::new(c);
    let by_rows = m >= n;
    each_piece(pool, m.max(n), m.min(n), |piece| {
        let (rows, cols) = if by_rows { (piece, 0..n) } else { (0..m, piece) };
        for rows in blocks(rows, BLOCK) {
            for cols in blocks(cols.clone(), BLOCK) {
                block(shape, a, b, &rows, &cols, |row, sums| {
                    // SAFETY: this piece alone writes its part of the row.
                    let c = unsafe { c.part(row * n + cols.start, cols.len()) };
                    store(c, sums, accumulate);
                });
            }
        }
    });
}

/// c = (or += if `accumulate`) sums, rounded once.
pub(crate) fn store<C: Stored>(c: &mut [C], sums: &[C::Real], accumulate: bool) {
    vectorised(
        #[inline(always)]
        || {
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = C::rounded(if accumulate { c.widen() + *sum } else { *sum });
            }
        },
    );
}

/// Calls `store` with every row of a block of C and its sums.
fn block<S: Stored>(
    shape: ProductShape,
    a: &[S],
    b: &[S],
    rows: &Range<usize>,
    cols: &Range<usize>,
    mut store: impl FnMut(usize, &[S::Real]),
) {
    let ProductShape { stored, m, n, k } = shape;
    let height = rows.len();
    let width = cols.len();
    let deepest = depth(k);
    S::Real::with_scratch(height * width + (height + width) * deepest, |scratch| {
        let (sums, scratch) = scratch.split_at_mut(height * width);
        let (left, right) = scratch.split_at_mut(height * deepest);
        for top in (0..k.max(1)).step_by(deepest) {
            let part = top..k.min(top + deepest);
            let left = &mut left[..height * part.len()];
            let right = &mut right[..width * part.len()];
            bring(stored == Transpose::Tn, a, if stored == Transpose::Tn { m } else { k }, rows, &part, left);
            bring(stored == Transpose::Nt, b, if stored == Transpose::Nt { k } else { n }, &part, cols, right);
            let shape = ProductShape { stored: Transpose::Nn, m: height, n: width, k: part.len() };
            let product = Product::new(shape, left, right, sums, top > 0);
            product.run(0..height, 0..width, Parallelism::None);
        }
        sums.chunks_exact(width).zip(rows.clone()).for_each(|(sums, row)| store(row, sums));
    });
}

/// to [rows, cols] = that part, widened, of x or, `turned`, of its transpose; x has rows of `stride`.
fn bring<S: Stored>(
    turned: bool,
    x: &[S],
    stride: usize,
    rows: &Range<usize>,
    cols: &Range<usize>,
    to: &mut [S::Real],
) {
    if rows.is_empty() || cols.is_empty() {
        return;
    }
    if turned {
        return turn_widened(cols.len(), rows.len(), &x[cols.start * stride + rows.start..], stride, to, cols.len());
    }
    vectorised(
        #[inline(always)]
        || {
            for (row, to) in rows.clone().zip(to.chunks_exact_mut(cols.len())) {
                widen_all(to, &x[row * stride + cols.start..row * stride + cols.end]);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::matmul;
    use half::{bf16, f16};

    /// Small integers, whose sums are exact in any order.
    fn integers<S: Stored<Real = f32>>(len: usize) -> Vec<S> {
        (0..len).map(|i| S::rounded((i * i % 11) as f32 - 5.0)).collect()
    }

    fn check<S: Stored<Real = f32>>(shape: ProductShape, accumulate: bool) {
        let ProductShape { m, n, k, .. } = shape;
        let a = integers::<S>(m * k);
        let b = integers::<S>(k * n);
        let mut c = integers::<S>(m * n);
        let mut expected = c.iter().map(|c| c.widen()).collect::<Vec<_>>();
        let mut other = c.clone();
        widened_product(&Pool::new(2), shape, &a, &b, &mut c, accumulate);
        let widen = |x: &[S]| x.iter().map(|x| x.widen()).collect::<Vec<_>>();
        matmul(&Pool::new(1), shape, &widen(&a), &widen(&b), &mut expected, accumulate);
        assert_eq!(c, expected.into_iter().map(S::rounded).collect::<Vec<_>>(), "{} {shape:?}", S::NAME);
        matmul(&Pool::new(3), shape, &a, &b, &mut other, accumulate);
        assert_eq!(c, other, "{} {shape:?}", S::NAME);
    }

    #[test]
    fn without_instructions_for_it_the_product_is_the_same() {
        let sizes = [(0, 3, 2), (3, 2, 0), (1, 1, 1), (5, 70, 33), (513, 65, 17), (40, 1100, 9), (65, 66, 1025)];
        for (m, n, k) in sizes {
            for stored in Transpose::ALL {
                for accumulate in [false, true] {
                    check::<bf16>(ProductShape { stored, m, n, k }, accumulate);
                    check::<f16>(ProductShape { stored, m, n, k }, accumulate);
                }
            }
        }
    }
}
