//! Biases, and functions of a perceptron without gates, also fused with a bias.

use crate::curves::{Curve, Function, with_curve};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{add, block_rows, column_sums};
use crate::pool::Pool;
use crate::shape::Shape;

/// x [rows, cols] += bias `[cols]`, in every row.
pub fn bias_forward<T: Element>(pool: &Pool, shape: Shape, x: &mut [T], bias: &[T]) {
    let Shape { rows, cols } = shape;
    assert_eq!((x.len(), bias.len()), (rows * cols, cols));
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, cols) * cols;
    pool.each(x.chunks_mut(piece), |x| x.chunks_exact_mut(cols).for_each(|x| add(x, bias)));
}

/// dbias `[cols]` = (or += if `accumulate`) the column sums of dy [rows, cols].
pub fn bias_backward<T: Element>(pool: &Pool, shape: Shape, dy: &[T], dbias: &mut [T], accumulate: bool) {
    let Shape { rows, cols } = shape;
    assert_eq!(dy.len(), rows * cols);
    let blocks = dy.chunks((block_rows(rows) * cols).max(1));
    column_sums(pool, cols, blocks, &mut [dbias], accumulate, |dy, sums| {
        dy.chunks_exact(cols).for_each(|dy| add(sums, dy));
    });
}

/// pre [rows, cols] += bias, kept for the backward pass; y = curve(pre).
pub fn bias_curve_forward<T: Element>(
    pool: &Pool,
    curve: Curve,
    shape: Shape,
    pre: &mut [T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    let Shape { rows, cols } = shape;
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
            with_curve!(curve, F, activate::<F, T>(pre, y));
        }
    });
}

/// activated = curve(pre), for a stored `pre`: bit by bit what [`bias_curve_forward`] gave with it.
pub fn activate_curve<T: Element>(pool: &Pool, curve: Curve, pre: &[T], activated: &mut [T]) {
    assert_eq!(pre.len(), activated.len());
    let piece = pool.piece(pre.len());
    pool.each(pre.chunks(piece).zip(activated.chunks_mut(piece)), |(pre, y)| {
        with_curve!(curve, F, activate::<F, T>(pre, y))
    });
}

/// y = F(pre), on this thread.
fn activate<F: Function, T: Element>(pre: &[T], y: &mut [T]) {
    vectorised(
        #[inline(always)]
        || y.iter_mut().zip(pre).for_each(|(y, x)| *y = F::value(*x)),
    );
}

/// dy [rows, cols] becomes the gradient of `pre`; its column sums are written to, or with
/// `accumulate` added to, `dbias`.
pub fn bias_curve_backward<T: Element>(
    pool: &Pool,
    curve: Curve,
    shape: Shape,
    pre: &[T],
    dy: &mut [T],
    dbias: Option<&mut [T]>,
    accumulate: bool,
) {
    let Shape { rows, cols } = shape;
    assert_eq!((pre.len(), dy.len()), (rows * cols, rows * cols));
    let piece = match dbias {
        Some(_) => block_rows(rows),
        None => pool.rows_per_piece(rows, cols),
    };
    let piece = (piece * cols).max(1);
    let blocks = pre.chunks(piece).zip(dy.chunks_mut(piece));
    let Some(dbias) = dbias else {
        return pool.each(blocks, |(pre, dy)| with_curve!(curve, F, gradient::<F, T>(pre, dy)));
    };
    column_sums(pool, cols, blocks, &mut [dbias], accumulate, |(pre, dy), sums| {
        for (pre, dy) in pre.chunks_exact(cols).zip(dy.chunks_exact_mut(cols)) {
            with_curve!(curve, F, gradient::<F, T>(pre, dy));
            add(sums, dy);
        }
    });
}

fn gradient<F: Function, T: Element>(pre: &[T], dy: &mut [T]) {
    vectorised(
        #[inline(always)]
        || pre.iter().zip(dy).for_each(|(x, dy)| *dy *= F::slope(*x).1),
    );
}
