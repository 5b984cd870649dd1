//! Biases, and functions of a perceptron without gates, also fused with a bias.

use crate::curves::{Curve, Function, with_curve};
use crate::dispatch::vectorised;
use crate::lanes::{add, block_rows, column_sums};
use crate::pool::Pool;
use crate::shape::Shape;
use crate::stored::Stored;

/// x [rows, cols] += bias `[cols]`, in every row.
pub fn bias_forward<S: Stored>(pool: &Pool, shape: Shape, x: &mut [S], bias: &[S::Real]) {
    let Shape { rows, cols } = shape;
    assert_eq!((x.len(), bias.len()), (rows * cols, cols));
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, cols) * cols;
    pool.each(x.chunks_mut(piece), |x| x.chunks_exact_mut(cols).for_each(|x| add(x, bias)));
}

/// dbias `[cols]` = (or += if `accumulate`) the column sums of dy [rows, cols].
pub fn bias_backward<S: Stored>(pool: &Pool, shape: Shape, dy: &[S], dbias: &mut [S::Real], accumulate: bool) {
    let Shape { rows, cols } = shape;
    assert_eq!(dy.len(), rows * cols);
    let blocks = dy.chunks((block_rows(rows) * cols).max(1));
    column_sums(pool, cols, blocks, &mut [dbias], accumulate, |dy, sums| {
        dy.chunks_exact(cols).for_each(|dy| add(sums, dy));
    });
}

/// pre [rows, cols] += bias, kept for the backward pass; y = curve(pre), of what was stored.
pub fn bias_curve_forward<S: Stored>(
    pool: &Pool,
    curve: Curve,
    shape: Shape,
    pre: &mut [S],
    bias: Option<&[S::Real]>,
    y: &mut [S],
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
            with_curve!(curve, F, activate::<F, S>(pre, y));
        }
    });
}

/// activated = curve(pre), for a stored `pre`: bit by bit what [`bias_curve_forward`] gave with it.
pub fn activate_curve<S: Stored>(pool: &Pool, curve: Curve, pre: &[S], activated: &mut [S]) {
    assert_eq!(pre.len(), activated.len());
    let piece = pool.piece(pre.len());
    pool.each(pre.chunks(piece).zip(activated.chunks_mut(piece)), |(pre, y)| {
        with_curve!(curve, F, activate::<F, S>(pre, y))
    });
}

/// y = F(pre), on this thread.
fn activate<F: Function, S: Stored>(pre: &[S], y: &mut [S]) {
    vectorised(
        #[inline(always)]
        || y.iter_mut().zip(pre).for_each(|(y, x)| *y = S::rounded(F::value(x.widen()))),
    );
}

/// dy [rows, cols] becomes the gradient of `pre`; its column sums, of what was stored, are written
/// to, or with `accumulate` added to, `dbias`.
pub fn bias_curve_backward<S: Stored>(
    pool: &Pool,
    curve: Curve,
    shape: Shape,
    pre: &[S],
    dy: &mut [S],
    dbias: Option<&mut [S::Real]>,
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
        return pool.each(blocks, |(pre, dy)| with_curve!(curve, F, gradient::<F, S>(pre, dy)));
    };
    column_sums(pool, cols, blocks, &mut [dbias], accumulate, |(pre, dy), sums| {
        for (pre, dy) in pre.chunks_exact(cols).zip(dy.chunks_exact_mut(cols)) {
            with_curve!(curve, F, gradient::<F, S>(pre, dy));
            add(sums, dy);
        }
    });
}

fn gradient<F: Function, S: Stored>(pre: &[S], dy: &mut [S]) {
    vectorised(
        #[inline(always)]
        || pre.iter().zip(dy).for_each(|(x, dy)| *dy = S::rounded(dy.widen() * F::slope(x.widen()).1)),
    );
}
