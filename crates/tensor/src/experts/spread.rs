//! Tokens copied to the slots of their experts.

use super::SpreadShape;
use crate::dispatch::vectorised;
use crate::lanes::add;
use crate::pool::Pool;
use crate::stored::{Stored, round_all};

/// y [P, cols] = in each choice's slot a copy of its row of x [rows, cols]; zero in slots that nobody has.
pub fn spread<S: Stored>(pool: &Pool, shape: SpreadShape<'_>, x: &[S], routes: &[S::Real], y: &mut [S]) {
    let SpreadShape { rows, cols, per_token, .. } = shape;
    assert_eq!((x.len(), y.len()), (rows * cols, shape.placed_len()));
    assert_eq!(routes.len(), rows * 3 * per_token);
    if cols == 0 {
        return;
    }
    let choices = shape.choices(routes);
    let piece = pool.rows_per_piece(choices.len(), cols);
    pool.each(y.chunks_mut(piece * cols).zip(choices.chunks(piece)), |(y, choices)| {
        for (y, choice) in y.chunks_exact_mut(cols).zip(choices) {
            match choice.map(|choice| choice / per_token) {
                Some(row) => y.copy_from_slice(&x[row * cols..(row + 1) * cols]),
                None => y.fill(S::ZERO),
            }
        }
    });
}

/// dx [rows, cols] = the sum of dy [P, cols] over the slots of a row, choice by choice, rounded once.
pub fn spread_backward<S: Stored>(pool: &Pool, shape: SpreadShape<'_>, dy: &[S], routes: &[S::Real], dx: &mut [S]) {
    gather(pool, shape, dy, routes, dx, |sums, _, dy| add(sums, dy));
}

/// y [rows, cols] = what `add_row(sums, weight, row of x)` makes of sums that start at zero, called for each choice that
/// is not dropped in ascending order, rounded once.
pub(super) fn gather<S: Stored>(
    pool: &Pool,
    shape: SpreadShape<'_>,
    x: &[S],
    routes: &[S::Real],
    y: &mut [S],
    add_row: impl Fn(&mut [S::Real], S::Real, &[S]) + Sync,
) {
    let SpreadShape { rows, cols, per_token, .. } = shape;
    assert_eq!((x.len(), y.len()), (shape.placed_len(), rows * cols));
    assert_eq!(routes.len(), rows * 3 * per_token);
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(y.chunks_mut(piece * cols).enumerate(), |(i, y)| {
        S::Real::with_scratch(cols, |sums| {
            for (row, y) in y.chunks_exact_mut(cols).enumerate() {
                let routes = &routes[(i * piece + row) * 3 * per_token..][..3 * per_token];
                sums.fill(S::Real::ZERO);
                for choice in 0..per_token {
                    if let Some(place) = shape.place(routes, choice) {
                        add_row(sums, routes[2 * per_token + choice], &x[place * cols..(place + 1) * cols]);
                    }
                }
                vectorised(
                    #[inline(always)]
                    || round_all(y, sums),
                );
            }
        });
    });
}
