//! Layer norm, in the pieces between which ranks that share a row reduce its statistics.
//!
//! Letters: a matrix is [rows, cols] with `cols` local columns of `width` logical ones;
//! mean = sums / width, variance = squares / width, rstd = 1 / sqrt(variance + eps),
//! xhat = (x - mean) rstd, y = xhat gamma + beta.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{block_rows, column_sums, sum, sum_pairs};
use crate::pool::Pool;
use crate::shape::{NormShape, Shape};
use crate::stored::Stored;

/// sums `[rows]` = the sum of each row over the local columns.
pub fn norm_row_sums<S: Stored>(pool: &Pool, shape: Shape, x: &[S], sums: &mut [S::Real]) {
    let Shape { rows, cols } = shape;
    assert_eq!((x.len(), sums.len()), (rows * cols, rows));
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(sums.chunks_mut(piece).enumerate(), |(i, sums)| {
        let rows = &x[i * piece * cols..];
        vectorised(
            #[inline(always)]
            || {
                for (row, s) in sums.iter_mut().enumerate() {
                    *s = sum(&rows[row * cols..(row + 1) * cols], |x| x);
                }
            },
        );
    });
}

/// squares `[rows]` = the sum of (x - mean)^2 of each row over the local columns, given the sums
/// over all columns.
pub fn norm_centered_squares<S: Stored>(
    pool: &Pool,
    shape: NormShape,
    x: &[S],
    sums: &[S::Real],
    squares: &mut [S::Real],
) {
    let NormShape { rows, cols, width, .. } = shape;
    assert_eq!((x.len(), sums.len(), squares.len()), (rows * cols, rows, rows));
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(squares.chunks_mut(piece).enumerate(), |(i, squares)| {
        let rows = &x[i * piece * cols..];
        let sums = &sums[i * piece..];
        let width = S::Real::from_f64(width as f64);
        vectorised(
            #[inline(always)]
            || {
                for (row, s) in squares.iter_mut().enumerate() {
                    let mean = sums[row] / width;
                    let x = &rows[row * cols..(row + 1) * cols];
                    *s = sum(x, |x| (x - mean) * (x - mean));
                }
            },
        );
    });
}

/// The logical width and epsilon, and each row's reduced statistics.
#[derive(Clone, Copy)]
struct Statistics<'a, T> {
    width: T,
    eps: T,
    sums: &'a [T],
    squares: &'a [T],
}

impl<'a, T: Element> Statistics<'a, T> {
    fn new(rows: usize, width: usize, eps: f64, sums: &'a [T], squares: &'a [T]) -> Self {
        assert_eq!((sums.len(), squares.len()), (rows, rows));
        Statistics { width: T::from_f64(width as f64), eps: T::from_f64(eps), sums, squares }
    }

    /// Mean and rstd of a row.
    #[inline(always)]
    fn row(&self, row: usize) -> (T, T) {
        let variance = self.squares[row] / self.width;
        (self.sums[row] / self.width, T::ONE / (variance + self.eps).sqrt())
    }
}

/// y = xhat gamma + beta, given the sums and squares over all columns.
pub fn norm_forward<S: Stored>(
    pool: &Pool,
    shape: NormShape,
    x: &[S],
    sums: &[S::Real],
    squares: &[S::Real],
    gamma: &[S::Real],
    beta: &[S::Real],
    y: &mut [S],
) {
    let NormShape { rows, cols, width, eps } = shape;
    assert_eq!((x.len(), y.len()), (rows * cols, rows * cols));
    assert_eq!((gamma.len(), beta.len()), (cols, cols));
    let statistics = Statistics::new(rows, width, eps, sums, squares);
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
                    let (mean, rstd) = statistics.row(i * piece + row);
                    for (((y, x), g), b) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                        *y = S::rounded(((x.widen() - mean) * rstd).mul_add(*g, *b));
                    }
                }
            },
        );
    });
}

/// out [rows, 2] = per row, over the local columns, (sum of dy gamma, sum of dy gamma xhat), to
/// be reduced for [`norm_backward`]; dgamma and dbeta `[cols]` = (or += if `accumulate`) the
/// column sums of dy xhat and of dy.
pub fn norm_backward_sums<S: Stored>(
    pool: &Pool,
    shape: NormShape,
    x: &[S],
    sums: &[S::Real],
    squares: &[S::Real],
    gamma: &[S::Real],
    dy: &[S],
    out: &mut [S::Real],
    dgamma: &mut [S::Real],
    dbeta: &mut [S::Real],
    accumulate: bool,
) {
    let NormShape { rows, cols, width, eps } = shape;
    assert_eq!((x.len(), dy.len()), (rows * cols, rows * cols));
    assert_eq!((gamma.len(), out.len()), (cols, rows * 2));
    let statistics = Statistics::new(rows, width, eps, sums, squares);
    if cols == 0 {
        return out.fill(S::Real::ZERO);
    }
    let piece = block_rows(rows);
    let blocks = x.chunks(piece * cols).zip(dy.chunks(piece * cols)).zip(out.chunks_mut(piece * 2));
    let blocks = blocks.enumerate();
    column_sums(pool, cols, blocks, &mut [dgamma, dbeta], accumulate, |(i, ((x, dy), out)), sums| {
        let (dgamma, dbeta) = sums.split_at_mut(cols);
        vectorised(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(cols).zip(dy.chunks_exact(cols));
                for (row, ((x, dy), out)) in rows.zip(out.chunks_exact_mut(2)).enumerate() {
                    let (mean, rstd) = statistics.row(i * piece + row);
                    let (first, second) = sum_pairs(x, dy, gamma, |x, dy, g| (dy * g, dy * g * ((x - mean) * rstd)));
                    (out[0], out[1]) = (first, second);
                    let columns = dgamma.iter_mut().zip(dbeta.iter_mut());
                    for ((x, dy), (dgamma, dbeta)) in x.iter().zip(dy).zip(columns) {
                        *dgamma = dy.widen().mul_add((x.widen() - mean) * rstd, *dgamma);
                        *dbeta += dy.widen();
                    }
                }
            },
        );
    });
}

/// dx = (or += if `accumulate_dx`) rstd (dy gamma - s1 / width - xhat s2 / width), with
/// (s1, s2) = the rows of `reduced` [rows, 2]: [`norm_backward_sums`]' `out` over all columns.
pub fn norm_backward<S: Stored>(
    pool: &Pool,
    shape: NormShape,
    x: &[S],
    sums: &[S::Real],
    squares: &[S::Real],
    gamma: &[S::Real],
    dy: &[S],
    reduced: &[S::Real],
    dx: &mut [S],
    accumulate_dx: bool,
) {
    let NormShape { rows, cols, width, eps } = shape;
    assert_eq!((x.len(), dy.len(), dx.len()), (rows * cols, rows * cols, rows * cols));
    assert_eq!((gamma.len(), reduced.len()), (cols, rows * 2));
    let statistics = Statistics::new(rows, width, eps, sums, squares);
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
                    let (mean, rstd) = statistics.row(row);
                    let first = reduced[2 * row] / statistics.width;
                    let second = reduced[2 * row + 1] / statistics.width;
                    for (((dx, x), dy), g) in dx.iter_mut().zip(x).zip(dy).zip(gamma) {
                        let xhat = (x.widen() - mean) * rstd;
                        let d = rstd * (dy.widen() * *g - first - xhat * second);
                        *dx = S::rounded(if accumulate_dx { dx.widen() + d } else { d });
                    }
                }
            },
        );
    });
}
