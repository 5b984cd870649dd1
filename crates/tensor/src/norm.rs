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

/// sums `[rows]` = the sum of each row over the local columns.
pub fn norm_row_sums<T: Element>(pool: &Pool, shape: Shape, x: &[T], sums: &mut [T]) {
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
pub fn norm_centered_squares<T: Element>(pool: &Pool, shape: NormShape, x: &[T], sums: &[T], squares: &mut [T]) {
    let NormShape { rows, cols, width, .. } = shape;
    assert_eq!((x.len(), sums.len(), squares.len()), (rows * cols, rows, rows));
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(squares.chunks_mut(piece).enumerate(), |(i, squares)| {
        let (rows, sums) = (&x[i * piece * cols..], &sums[i * piece..]);
        let width = T::from_f64(width as f64);
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
pub fn norm_forward<T: Element>(
    pool: &Pool,
    shape: NormShape,
    x: &[T],
    sums: &[T],
    squares: &[T],
    gamma: &[T],
    beta: &[T],
    y: &mut [T],
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
                        *y = ((*x - mean) * rstd).mul_add(*g, *b);
                    }
                }
            },
        );
    });
}

/// out [rows, 2] = per row, over the local columns, (sum of dy gamma, sum of dy gamma xhat), to
/// be reduced for [`norm_backward`]; dgamma and dbeta `[cols]` = (or += if `accumulate`) the
/// column sums of dy xhat and of dy.
pub fn norm_backward_sums<T: Element>(
    pool: &Pool,
    shape: NormShape,
    x: &[T],
    sums: &[T],
    squares: &[T],
    gamma: &[T],
    dy: &[T],
    out: &mut [T],
    dgamma: &mut [T],
    dbeta: &mut [T],
    accumulate: bool,
) {
    let NormShape { rows, cols, width, eps } = shape;
    assert_eq!((x.len(), dy.len()), (rows * cols, rows * cols));
    assert_eq!((gamma.len(), out.len()), (cols, rows * 2));
    let statistics = Statistics::new(rows, width, eps, sums, squares);
    if cols == 0 {
        return out.fill(T::ZERO);
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
                        *dgamma = dy.mul_add((*x - mean) * rstd, *dgamma);
                        *dbeta += *dy;
                    }
                }
            },
        );
    });
}

/// dx = (or += if `accumulate_dx`) rstd (dy gamma - s1 / width - xhat s2 / width), with
/// (s1, s2) = the rows of `reduced` [rows, 2]: [`norm_backward_sums`]' `out` over all columns.
pub fn norm_backward<T: Element>(
    pool: &Pool,
    shape: NormShape,
    x: &[T],
    sums: &[T],
    squares: &[T],
    gamma: &[T],
    dy: &[T],
    reduced: &[T],
    dx: &mut [T],
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
                        let xhat = (*x - mean) * rstd;
                        let d = rstd * (*dy * *g - first - xhat * second);
                        *dx = if accumulate_dx { *dx + d } else { d };
                    }
                }
            },
        );
    });
}
