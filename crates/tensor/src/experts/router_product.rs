//! The products of a router, whose weight, logits and their gradients are as computed with, whatever values are stored
//! in: values are widened block by block.
//!
//! Blocks are the same for any number of threads. A router has few columns, so that what they cost beside whole products
//! is not seen beside those of its experts.

use super::RouterShape;
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::matmul::Transpose;
use crate::pool::Pool;
use crate::product::Product;
use crate::shape::ProductShape;
use crate::stored::{Stored, round_all, widen_all};
use gemm_common::Parallelism;

/// Rows of a block of values, and columns of one where rows are summed over.
const BLOCK: usize = 64;
/// Rows that are widened at a time where they are summed over.
const DEPTH: usize = 512;

/// logits [rows, E] = x [rows, cols] weight [cols, E].
pub fn router_forward<S: Stored>(
    pool: &Pool,
    shape: RouterShape,
    cols: usize,
    x: &[S],
    weight: &[S::Real],
    logits: &mut [S::Real],
) {
    let RouterShape { rows, experts, .. } = shape;
    assert_eq!((x.len(), weight.len(), logits.len()), (rows * cols, cols * experts, rows * experts));
    if experts == 0 {
        return;
    }
    pool.each(logits.chunks_mut(BLOCK * experts).enumerate(), |(block, logits)| {
        let height = logits.len() / experts;
        S::Real::with_scratch(height * cols, |wide| {
            widen(&x[block * BLOCK * cols..][..height * cols], wide);
            multiply(Transpose::Nn, (height, experts, cols), wide, weight, logits, false);
        });
    });
}

/// dx [rows, cols] = dlogits [rows, E] times the transposed weight [cols, E], rounded once.
pub fn router_input_gradient<S: Stored>(
    pool: &Pool,
    shape: RouterShape,
    cols: usize,
    dlogits: &[S::Real],
    weight: &[S::Real],
    dx: &mut [S],
) {
    let RouterShape { rows, experts, .. } = shape;
    assert_eq!((dx.len(), weight.len(), dlogits.len()), (rows * cols, cols * experts, rows * experts));
    if cols == 0 {
        return;
    }
    pool.each(dx.chunks_mut(BLOCK * cols).enumerate(), |(block, dx)| {
        let height = dx.len() / cols;
        let dlogits = &dlogits[block * BLOCK * experts..][..height * experts];
        S::Real::with_scratch(dx.len(), |wide| {
            multiply(Transpose::Nt, (height, cols, experts), dlogits, weight, wide, false);
            vectorised(
                #[inline(always)]
                || round_all(dx, wide),
            );
        });
    });
}

/// dweight [cols, E] = (or += if `accumulate`) the transposed x [rows, cols] times dlogits [rows, E].
pub fn router_weight_gradient<S: Stored>(
    pool: &Pool,
    shape: RouterShape,
    cols: usize,
    x: &[S],
    dlogits: &[S::Real],
    dweight: &mut [S::Real],
    accumulate: bool,
) {
    let RouterShape { rows, experts, .. } = shape;
    assert_eq!((x.len(), dweight.len(), dlogits.len()), (rows * cols, cols * experts, rows * experts));
    if experts == 0 {
        return;
    }
    pool.each(dweight.chunks_mut(BLOCK * experts).enumerate(), |(block, dweight)| {
        let left = block * BLOCK;
        let width = dweight.len() / experts;
        S::Real::with_scratch(DEPTH.min(rows) * width, |wide| {
            for top in (0..rows.max(1)).step_by(DEPTH) {
                let depth = DEPTH.min(rows - top);
                for (row, wide) in wide.chunks_exact_mut(width).enumerate().take(depth) {
                    widen(&x[(top + row) * cols + left..][..width], wide);
                }
                let wide = &wide[..depth * width];
                let dlogits = &dlogits[top * experts..][..depth * experts];
                multiply(Transpose::Tn, (width, experts, depth), wide, dlogits, dweight, accumulate || top > 0);
            }
        });
    });
}

fn widen<S: Stored>(x: &[S], wide: &mut [S::Real]) {
    vectorised(
        #[inline(always)]
        || widen_all(wide, x),
    );
}

/// A product of (m, n, k) on this thread.
fn multiply<T: Element>(
    stored: Transpose,
    (m, n, k): (usize, usize, usize),
    a: &[T],
    b: &[T],
    c: &mut [T],
    accumulate: bool,
) {
    Product::new(ProductShape { stored, m, n, k }, a, b, c, accumulate).run(0..m, 0..n, Parallelism::None);
}
