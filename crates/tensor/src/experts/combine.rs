//! The weighted sum of what a token's experts computed.

use super::SpreadShape;
use super::spread::gather;
use crate::dispatch::vectorised;
use crate::lanes::dot;
use crate::pool::{Disjoint, Pool};
use crate::stored::Stored;

/// y [rows, cols] = the sum of weight times x [P, cols] over the slots of a row, choice by choice, rounded once.
/// Choices that are dropped add nothing.
pub fn combine<S: Stored>(pool: &Pool, shape: SpreadShape<'_>, x: &[S], routes: &[S::Real], y: &mut [S]) {
    gather(pool, shape, x, routes, y, |sums, weight, x| {
        vectorised(
            #[inline(always)]
            || sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += weight * x.widen()),
        );
    });
}

/// The gradients of [`combine`], given dy [rows, cols]: dx [P, cols] = weight times the row of dy, zero in slots
/// that nobody has; dweights [rows, k] = the row of dy times that of x, over the local columns, 0 of dropped choices.
pub fn combine_backward<S: Stored>(
    pool: &Pool,
    shape: SpreadShape<'_>,
    dy: &[S],
    x: &[S],
    routes: &[S::Real],
    dx: &mut [S],
    dweights: &mut [S::Real],
) {
    let SpreadShape { rows, cols, per_token, .. } = shape;
    assert_eq!((dy.len(), x.len(), dx.len()), (rows * cols, shape.placed_len(), shape.placed_len()));
    assert_eq!((routes.len(), dweights.len()), (rows * 3 * per_token, rows * per_token));
    dweights.fill(S::Real::ZERO);
    if cols == 0 {
        return;
    }
    let choices = shape.choices(routes);
    let dweights = Disjoint::new(dweights);
    let piece = pool.rows_per_piece(choices.len(), cols);
    let pieces = dx.chunks_mut(piece * cols).zip(x.chunks(piece * cols)).zip(choices.chunks(piece));
    pool.each(pieces, |((dx, x), choices)| {
        for ((dx, x), choice) in dx.chunks_exact_mut(cols).zip(x.chunks_exact(cols)).zip(choices) {
            let Some(choice) = *choice else {
                dx.fill(S::ZERO);
                continue;
            };
            let dy = &dy[choice / per_token * cols..][..cols];
            let weight = shape.weight(routes, choice);
            // SAFETY: a choice has one slot, so that this alone writes its gradient.
            unsafe { dweights.part(choice, 1)[0] = row_backward(weight, dy, x, dx) };
        }
    });
}

/// dx = weight dy; returns the product of dy and x.
fn row_backward<S: Stored>(weight: S::Real, dy: &[S], x: &[S], dx: &mut [S]) -> S::Real {
    vectorised(
        #[inline(always)]
        || {
            dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = S::rounded(weight * dy.widen()));
            dot(dy, x)
        },
    )
}
