//! SwiGLU (Shazeer 2020): silu(gate) up, with silu(g) = g sigmoid(g).
//!
//! A pre-activation is [rows, 2 * cols], the columns gate 0, up 0, gate 1, up 1, ..., so that a
//! shard of columns holds whole pairs; the result is [rows, cols].

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{add, block_rows, column_sums};
use crate::pool::Pool;

/// pre [rows, 2 * cols] += bias, kept for the backward pass; y [rows, cols] = SwiGLU(pre).
pub fn bias_swiglu_forward<T: Element>(
    pool: &Pool,
    rows: usize,
    cols: usize,
    pre: &mut [T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    assert_eq!((pre.len(), y.len()), (rows * 2 * cols, rows * cols));
    assert!(bias.is_none_or(|bias| bias.len() == 2 * cols));
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, 2 * cols) * cols;
    pool.each(pre.chunks_mut(2 * piece).zip(y.chunks_mut(piece)), |(pre, y)| {
        if let Some(bias) = bias {
            pre.chunks_exact_mut(2 * cols).for_each(|pre| add(pre, bias));
        }
        activate(pre, y);
    });
}

/// activated = SwiGLU(pre), for a stored `pre`: bit by bit what [`bias_swiglu_forward`] gave with it.
pub fn swiglu<T: Element>(pool: &Pool, pre: &[T], activated: &mut [T]) {
    assert_eq!(pre.len(), 2 * activated.len());
    let piece = pool.piece(activated.len());
    pool.each(pre.chunks(2 * piece).zip(activated.chunks_mut(piece)), |(pre, y)| activate(pre, y));
}

/// y = SwiGLU(pre), on this thread.
fn activate<T: Element>(pre: &[T], y: &mut [T]) {
    vectorised(
        #[inline(always)]
        || {
            for (y, pair) in y.iter_mut().zip(pre.chunks_exact(2)) {
                *y = pair[0] / (T::ONE + exp_minus(pair[0])) * pair[1];
            }
        },
    );
}

/// pre [rows, 2 * cols] becomes its gradient, given dy [rows, cols]; its column sums are written
/// to, or with `accumulate` added to, `dbias`.
pub fn bias_swiglu_backward<T: Element>(
    pool: &Pool,
    rows: usize,
    cols: usize,
    pre: &mut [T],
    dy: &[T],
    dbias: Option<&mut [T]>,
    accumulate: bool,
) {
    assert_eq!((pre.len(), dy.len()), (rows * 2 * cols, rows * cols));
    let piece = match dbias {
        Some(_) => block_rows(rows),
        None => pool.rows_per_piece(rows, 2 * cols),
    };
    let piece = (piece * cols).max(1);
    let blocks = pre.chunks_mut(2 * piece).zip(dy.chunks(piece));
    let Some(dbias) = dbias else {
        return pool.each(blocks, |(pre, dy)| gradient(pre, dy));
    };
    column_sums(pool, 2 * cols, blocks, &mut [dbias], accumulate, |(pre, dy), sums| {
        for (pre, dy) in pre.chunks_exact_mut(2 * cols).zip(dy.chunks_exact(cols)) {
            gradient(pre, dy);
            add(sums, pre);
        }
    });
}

fn gradient<T: Element>(pre: &mut [T], dy: &[T]) {
    vectorised(
        #[inline(always)]
        || {
            for (pair, dy) in pre.chunks_exact_mut(2).zip(dy) {
                let (gate, up) = (pair[0], pair[1]);
                let e = exp_minus(gate);
                let sigmoid = T::ONE / (T::ONE + e);
                // 1 - sigmoid = e sigmoid, without cancellation.
                let slope = (gate * (e * sigmoid)).mul_add(sigmoid, sigmoid);
                pair[0] = *dy * up * slope;
                pair[1] = *dy * (gate * sigmoid);
            }
        },
    );
}

/// e^(-x), cut off where the sigmoid is 1e-35, so that it stays finite.
#[inline(always)]
fn exp_minus<T: Element>(x: T) -> T {
    let limit = T::from_f64(80.0);
    (if -x > limit { limit } else { -x }).exp()
}
