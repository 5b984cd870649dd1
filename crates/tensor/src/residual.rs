//! Dropout and the residual stream.
//!
//! Which elements survive is a function of their local row and column, given by the caller: a
//! counter-based generator over logical indices makes it independent of the layout.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::add;
use crate::pool::Pool;
use crate::shape::Shape;
use crate::stored::Stored;

/// The factor of surviving elements, 1 / (1 - p), and whether element (row, column) survives.
pub type Dropout<'a, T> = (T, &'a (dyn Fn(usize, usize) -> bool + Sync));

/// x [rows, cols]: elements that `keep(row, column)` are multiplied by `scale`, others zero; of a
/// gradient likewise.
pub fn dropout<S: Stored>(
    pool: &Pool,
    shape: Shape,
    x: &mut [S],
    scale: S::Real,
    keep: impl Fn(usize, usize) -> bool + Sync,
) {
    let Shape { rows, cols } = shape;
    assert_eq!(x.len(), rows * cols);
    if cols == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(rows, cols);
    pool.each(x.chunks_mut(per_piece * cols).enumerate(), |(piece, x)| {
        for (i, x) in x.chunks_exact_mut(cols).enumerate() {
            for (col, x) in x.iter_mut().enumerate() {
                *x = S::rounded(dropped(x.widen(), scale, keep(piece * per_piece + i, col)));
            }
        }
    });
}

#[inline(always)]
fn dropped<T: Element>(x: T, scale: T, keep: bool) -> T {
    if keep { x * scale } else { T::ZERO }
}

/// x [rows, cols] becomes residual + dropout(x + bias).
pub fn residual_forward<S: Stored>(
    pool: &Pool,
    shape: Shape,
    x: &mut [S],
    bias: Option<&[S::Real]>,
    residual: &[S],
    dropout: Option<Dropout<'_, S::Real>>,
) {
    let Shape { rows, cols } = shape;
    assert_eq!((x.len(), residual.len()), (rows * cols, rows * cols));
    assert!(bias.is_none_or(|bias| bias.len() == cols));
    if cols == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(rows, cols);
    let pieces = x.chunks_mut(per_piece * cols).zip(residual.chunks(per_piece * cols));
    pool.each(pieces.enumerate(), |(piece, (x, residual))| {
        for (i, (x, residual)) in x.chunks_exact_mut(cols).zip(residual.chunks_exact(cols)).enumerate() {
            residual_row(piece * per_piece + i, x, bias, residual, dropout);
        }
    });
}

fn residual_row<S: Stored>(
    row: usize,
    x: &mut [S],
    bias: Option<&[S::Real]>,
    residual: &[S],
    dropout: Option<Dropout<'_, S::Real>>,
) {
    match (bias, dropout) {
        (Some(bias), None) => vectorised(
            #[inline(always)]
            || {
                for ((x, b), r) in x.iter_mut().zip(bias).zip(residual) {
                    *x = S::rounded(r.widen() + (x.widen() + *b));
                }
            },
        ),
        (None, None) => add(x, residual),
        (bias, Some((scale, keep))) => {
            for (col, (x, r)) in x.iter_mut().zip(residual).enumerate() {
                let biased = bias.map_or(x.widen(), |bias| x.widen() + bias[col]);
                *x = S::rounded(r.widen() + dropped(biased, scale, keep(row, col)));
            }
        }
    }
}
