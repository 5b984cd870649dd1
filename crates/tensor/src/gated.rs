//! Functions of a perceptron with gates (Shazeer 2020): curve(gate) up; SwiGLU with silu(g) = g sigmoid(g).
//!
//! A pre-activation is [rows, 2 * cols], the columns gate 0, up 0, gate 1, up 1, ..., so that a
//! shard of columns holds whole pairs; the result is [rows, cols].

use crate::curves::{Curve, Function, with_curve};
use crate::dispatch::vectorised;
use crate::lanes::{add, block_rows, column_sums};
use crate::pool::Pool;
use crate::shape::Shape;
use crate::stored::Stored;

/// pre [rows, 2 * cols] += bias, kept for the backward pass; y [rows, cols] = curve(gate) up, of
/// what was stored.
pub fn bias_gated_forward<S: Stored>(
    pool: &Pool,
    curve: Curve,
    shape: Shape,
    pre: &mut [S],
    bias: Option<&[S::Real]>,
    y: &mut [S],
) {
    let Shape { rows, cols } = shape;
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
        with_curve!(curve, F, activate::<F, S>(pre, y));
    });
}

/// activated = curve(gate) up, for a stored `pre`: bit by bit what [`bias_gated_forward`] gave with it.
pub fn activate_gated<S: Stored>(pool: &Pool, curve: Curve, pre: &[S], activated: &mut [S]) {
    assert_eq!(pre.len(), 2 * activated.len());
    let piece = pool.piece(activated.len());
    pool.each(pre.chunks(2 * piece).zip(activated.chunks_mut(piece)), |(pre, y)| {
        with_curve!(curve, F, activate::<F, S>(pre, y))
    });
}

/// y = F(gate) up, on this thread.
fn activate<F: Function, S: Stored>(pre: &[S], y: &mut [S]) {
    vectorised(
        #[inline(always)]
        || {
            for (y, pair) in y.iter_mut().zip(pre.chunks_exact(2)) {
                *y = S::rounded(F::value(pair[0].widen()) * pair[1].widen());
            }
        },
    );
}

/// pre [rows, 2 * cols] becomes its gradient, given dy [rows, cols]; its column sums, of what
/// was stored, are written to, or with `accumulate` added to, `dbias`.
pub fn bias_gated_backward<S: Stored>(
    pool: &Pool,
    curve: Curve,
    shape: Shape,
    pre: &mut [S],
    dy: &[S],
    dbias: Option<&mut [S::Real]>,
    accumulate: bool,
) {
    let Shape { rows, cols } = shape;
    assert_eq!((pre.len(), dy.len()), (rows * 2 * cols, rows * cols));
    let piece = match dbias {
        Some(_) => block_rows(rows),
        None => pool.rows_per_piece(rows, 2 * cols),
    };
    let piece = (piece * cols).max(1);
    let blocks = pre.chunks_mut(2 * piece).zip(dy.chunks(piece));
    let Some(dbias) = dbias else {
        return pool.each(blocks, |(pre, dy)| with_curve!(curve, F, gradient::<F, S>(pre, dy)));
    };
    column_sums(pool, 2 * cols, blocks, &mut [dbias], accumulate, |(pre, dy), sums| {
        for (pre, dy) in pre.chunks_exact_mut(2 * cols).zip(dy.chunks_exact(cols)) {
            with_curve!(curve, F, gradient::<F, S>(pre, dy));
            add(sums, pre);
        }
    });
}

fn gradient<F: Function, S: Stored>(pre: &mut [S], dy: &[S]) {
    vectorised(
        #[inline(always)]
        || {
            for (pair, dy) in pre.chunks_exact_mut(2).zip(dy) {
                let (value, slope) = F::slope(pair[0].widen());
                pair[0] = S::rounded(dy.widen() * pair[1].widen() * slope);
                pair[1] = S::rounded(dy.widen() * value);
            }
        },
    );
}
