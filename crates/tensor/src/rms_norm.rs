//! RMS norm (Zhang and Sennrich 2019), in the pieces between which ranks that share a row reduce
//! its statistics.
//!
//! Letters: a matrix is [rows, cols] with `cols` local columns of `width` logical ones;
//! rrms = 1 / sqrt(squares / width + eps), xhat = x rrms, y = xhat gamma.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{block_rows, column_sums, sum, sum_pairs};
use crate::pool::Pool;
use crate::shape::{NormShape, Shape};
use crate::stored::Stored;

/// squares `[rows]` = the sum of x^2 of each row over the local columns.
pub fn rms_norm_squares<S: Stored>(pool: &Pool, shape: Shape, x: &[S], squares: &mut [S::Real]) {
    let Shape { rows, cols } = shape;
    assert_eq!((x.len(), squares.len()), (rows * cols, rows));
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(squares.chunks_mut(piece).enumerate(), |(i, squares)| {
        let rows = &x[i * piece * cols..];
        vectorised(
            #[inline(always)]
            || {
                for (row, s) in squares.iter_mut().enumerate() {
                    *s = sum(&rows[row * cols..(row + 1) * cols], |x| x * x);
                }
            },
        );
    });
}

/// The logical width and epsilon, and each row's reduced statistic.
#[derive(Clone, Copy)]
struct Statistics<'a, T> {
    width: T,
    eps: T,
    squares: &'a [T],
}

impl<'a, T: Element> Statistics<'a, T> {
    fn new(rows: usize, width: usize, eps: f64, squares: &'a [T]) -> Self {
        assert_eq!(squares.len(), rows);
        Statistics { width: T::from_f64(width as f64), eps: T::from_f64(eps), squares }
    }

    /// rrms of a row.
    #[inline(always)]
    fn row(&self, row: usize) -> T {
        T::ONE / (self.squares[row] / self.width + self.eps).sqrt()
    }
}

/// y = xhat gamma, given the squares over all columns.
pub fn rms_norm_forward<S: Stored>(
    pool: &Pool,
    shape: NormShape,
    x: &[S],
    squares: &[S::Real],
    gamma: &[S::Real],
    y: &mut [S],
) {
    let NormShape { rows, cols, width, eps } = shape;
    assert_eq!((x.len(), y.len(), gamma.len()), (rows * cols, rows * cols, cols));
    let statistics = Statistics::new(rows, width, eps, squares);
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, cols);
    let pieces = x.chunks(piece * cols).zip(y.chunks_mut(piece * cols));
    pool.each(pieces.enumerate(), |(i, (x, y))| {
        vectorised(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(cols).zip(y.chunks_exact_mut(cols));
                for (row, (x, y)) in rows.enumerate() {
                    let rrms = statistics.row(i * piece + row);
                    for ((y, x), g) in y.iter_mut().zip(x).zip(gamma) {
                        *y = S::rounded(x.widen() * rrms * *g);
                    }
                }
            },
        );
    });
}

/// out `[rows]` = per row, over the local columns, the sum of dy gamma xhat, to be reduced for
/// [`rms_norm_backward`]; dgamma `[cols]` = (or += if `accumulate`) the column sums of dy xhat.
pub fn rms_norm_backward_sums<S: Stored>(
    pool: &Pool,
    shape: NormShape,
    x: &[S],
    squares: &[S::Real],
    gamma: &[S::Real],
    dy: &[S],
    out: &mut [S::Real],
    dgamma: &mut [S::Real],
    accumulate: bool,
) {
    let NormShape { rows, cols, width, eps } = shape;
    assert_eq!((x.len(), dy.len()), (rows * cols, rows * cols));
    assert_eq!((gamma.len(), out.len()), (cols, rows));
    let statistics = Statistics::new(rows, width, eps, squares);
    if cols == 0 {
        return out.fill(S::Real::ZERO);
    }
    let piece = block_rows(rows);
    let blocks = x.chunks(piece * cols).zip(dy.chunks(piece * cols)).zip(out.chunks_mut(piece));
    column_sums(pool, cols, blocks.enumerate(), &mut [dgamma], accumulate, |(i, ((x, dy), out)), dgamma| {
        vectorised(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(cols).zip(dy.chunks_exact(cols));
                for (row, ((x, dy), out)) in rows.zip(out).enumerate() {
                    let rrms = statistics.row(i * piece + row);
                    *out = sum_pairs(x, dy, gamma, |x, dy, g| (dy * g * (x * rrms), S::Real::ZERO)).0;
                    for ((x, dy), dgamma) in x.iter().zip(dy).zip(dgamma.iter_mut()) {
                        *dgamma = dy.widen().mul_add(x.widen() * rrms, *dgamma);
                    }
                }
            },
        );
    });
}

/// dx = (or += if `accumulate_dx`) rrms (dy gamma - xhat s / width), with s of `reduced` `[rows]`:
/// [`rms_norm_backward_sums`]' `out` over all columns.
pub fn rms_norm_backward<S: Stored>(
    pool: &Pool,
    shape: NormShape,
    x: &[S],
    squares: &[S::Real],
    gamma: &[S::Real],
    dy: &[S],
    reduced: &[S::Real],
    dx: &mut [S],
    accumulate_dx: bool,
) {
    let NormShape { rows, cols, width, eps } = shape;
    assert_eq!((x.len(), dy.len(), dx.len()), (rows * cols, rows * cols, rows * cols));
    assert_eq!((gamma.len(), reduced.len()), (cols, rows));
    let statistics = Statistics::new(rows, width, eps, squares);
    if cols == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, cols);
    let pieces = x.chunks(piece * cols).zip(dy.chunks(piece * cols)).zip(dx.chunks_mut(piece * cols));
    pool.each(pieces.enumerate(), |(i, ((x, dy), dx))| {
        vectorised(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(cols).zip(dy.chunks_exact(cols));
                for (row, ((x, dy), dx)) in rows.zip(dx.chunks_exact_mut(cols)).enumerate() {
                    let row = i * piece + row;
                    let rrms = statistics.row(row);
                    let mean = reduced[row] / statistics.width;
                    for (((dx, x), dy), g) in dx.iter_mut().zip(x).zip(dy).zip(gamma) {
                        let d = rrms * (dy.widen() * *g - x.widen() * rrms * mean);
                        *dx = S::rounded(if accumulate_dx { dx.widen() + d } else { d });
                    }
                }
            },
        );
    });
}
