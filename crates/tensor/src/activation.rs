//! Biases, and GELU, also fused with a bias.
//!
//! GELU in its tanh form, 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), is
//! x sigmoid(2u): one exponential, and no cancellation for negative x.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{add, block_rows, column_sums};
use crate::pool::Pool;

/// 2 sqrt(2/pi).
const SLOPE: f64 = 1.595_769_121_605_730_8;
/// The cubic term's weight.
const CUBIC: f64 = 0.044_715;

/// x [rows, cols] += bias `[cols]`, in every row.
pub fn bias_forward<T: Element>(pool: &Pool, rows: usize, cols: usize, x: &mut [T], bias: &[T]) {
    assert_eq!((x.len(), bias.len()), (rows * cols, cols));
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, cols) * cols;
    pool.each(x.chunks_mut(piece), |x| x.chunks_exact_mut(cols).for_each(|x| add(x, bias)));
}

/// dbias `[cols]` = (or += if `accumulate`) the column sums of dy [rows, cols].
pub fn bias_backward<T: Element>(pool: &Pool, rows: usize, cols: usize, dy: &[T], dbias: &mut [T], accumulate: bool) {
    assert_eq!(dy.len(), rows * cols);
    let blocks = dy.chunks((block_rows(rows) * cols).max(1));
    column_sums(pool, cols, blocks, &mut [dbias], accumulate, |dy, sums| {
        dy.chunks_exact(cols).for_each(|dy| add(sums, dy));
    });
}

/// pre [rows, cols] += bias, kept for the backward pass; y = GELU(pre).
pub fn bias_gelu_forward<T: Element>(
    pool: &Pool,
    rows: usize,
    cols: usize,
    pre: &mut [T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    assert_eq!((pre.len(), y.len()), (rows * cols, rows * cols));
    assert!(bias.is_none_or(|bias| bias.len() == cols));
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, cols) * cols;
    pool.each(pre.chunks_mut(piece).zip(y.chunks_mut(piece)), |(pre, y)| {
        for (pre, y) in pre.chunks_exact_mut(cols).zip(y.chunks_exact_mut(cols)) {
            if let Some(bias) = bias {
                add(pre, bias);
            }
            activate(pre, y);
        }
    });
}

/// activated = GELU(pre), for a stored `pre`: bit by bit what [`bias_gelu_forward`] gave with it.
pub fn gelu<T: Element>(pool: &Pool, pre: &[T], activated: &mut [T]) {
    assert_eq!(pre.len(), activated.len());
    let piece = pool.piece(pre.len());
    pool.each(pre.chunks(piece).zip(activated.chunks_mut(piece)), |(pre, y)| activate(pre, y));
}

/// y = GELU(pre), on this thread.
fn activate<T: Element>(pre: &[T], y: &mut [T]) {
    vectorised(
        #[inline(always)]
        || y.iter_mut().zip(pre).for_each(|(y, x)| *y = *x / (T::ONE + exp_minus_2u(*x))),
    );
}

/// dy [rows, cols] becomes the gradient of `pre`; its column sums are written to, or with
/// `accumulate` added to, `dbias`.
pub fn bias_gelu_backward<T: Element>(
    pool: &Pool,
    rows: usize,
    cols: usize,
    pre: &[T],
    dy: &mut [T],
    dbias: Option<&mut [T]>,
    accumulate: bool,
) {
    assert_eq!((pre.len(), dy.len()), (rows * cols, rows * cols));
    let piece = match dbias {
        Some(_) => block_rows(rows),
        None => pool.rows_per_piece(rows, cols),
    };
    let piece = (piece * cols).max(1);
    let blocks = pre.chunks(piece).zip(dy.chunks_mut(piece));
    let Some(dbias) = dbias else {
        return pool.each(blocks, |(pre, dy)| gelu_gradient(pre, dy));
    };
    column_sums(pool, cols, blocks, &mut [dbias], accumulate, |(pre, dy), sums| {
        for (pre, dy) in pre.chunks_exact(cols).zip(dy.chunks_exact_mut(cols)) {
            gelu_gradient(pre, dy);
            add(sums, dy);
        }
    });
}

fn gelu_gradient<T: Element>(pre: &[T], dy: &mut [T]) {
    let (slope, cubic) = (T::from_f64(SLOPE), T::from_f64(3.0 * SLOPE * CUBIC));
    vectorised(
        #[inline(always)]
        || {
            for (x, dy) in pre.iter().zip(dy) {
                let e = exp_minus_2u(*x);
                let sigmoid = T::ONE / (T::ONE + e);
                let inner = cubic.mul_add(*x * *x, slope);
                // 1 - sigmoid = e sigmoid, without cancellation.
                *dy *= (*x * inner * (e * sigmoid)).mul_add(sigmoid, sigmoid);
            }
        },
    );
}

/// e^(-2u), of which sigmoid(2u) = 1 / (1 + e^(-2u)); cut off where the sigmoid is 1e-35, so that
/// it stays finite.
#[inline(always)]
fn exp_minus_2u<T: Element>(x: T) -> T {
    let z = x * T::from_f64(-SLOPE * CUBIC).mul_add(x * x, T::from_f64(-SLOPE));
    let limit = T::from_f64(80.0);
    (if z > limit { limit } else { z }).exp()
}
