//! Products run in another layout than their operands are stored in.
//!
//! Kernel tuning as in AxoNN (Singh et al. 2024): of the three layouts one may be faster on a
//! device, and by more than the transposition costs.

use crate::buffer::Buffer;
use crate::matmul::{Transpose, matmul};
use crate::pool::Pool;
use crate::shape::ProductShape;
use crate::stored::Stored;
use crate::turn::turn;

/// Side of the square blocks that are transposed at a time, so that both sides stay in L1.
const BLOCK: usize = 64;

/// Elements of scratch that [`matmul_as`] needs: the operands that the two layouts store apart.
pub fn matmul_as_scratch(run_as: Transpose, shape: ProductShape) -> usize {
    let ProductShape { stored, m, n, k } = shape;
    let (flip_a, flip_b) = flips(run_as, stored);
    (if flip_a { m * k } else { 0 }) + (if flip_b { k * n } else { 0 })
}

fn flips(run_as: Transpose, stored: Transpose) -> (bool, bool) {
    let flip = |layout| (run_as == layout) != (stored == layout);
    (flip(Transpose::Tn), flip(Transpose::Nt))
}

/// The product of [`matmul`] with operands stored as `stored`, run as `run_as`: operands that
/// differ are transposed into `scratch` first, which grows if it is too small.
pub fn matmul_as<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    run_as: Transpose,
    shape: ProductShape,
    a: &[S],
    b: &[S],
    c: &mut [C],
    accumulate: bool,
    scratch: &mut Buffer<S>,
) {
    let ProductShape { stored, m, n, k } = shape;
    let needed = matmul_as_scratch(run_as, shape);
    if scratch.len() < needed {
        *scratch = Buffer::new(needed);
    }
    let (flip_a, flip_b) = flips(run_as, stored);
    let (for_a, for_b) = scratch.split_at_mut(if flip_a { m * k } else { 0 });
    let a = if flip_a {
        let (rows, cols) = if stored == Transpose::Tn { (k, m) } else { (m, k) };
        transpose(pool, rows, cols, a, for_a);
        &*for_a
    } else {
        a
    };
    let b = if flip_b {
        let (rows, cols) = if stored == Transpose::Nt { (n, k) } else { (k, n) };
        transpose(pool, rows, cols, b, &mut for_b[..k * n]);
        &for_b[..k * n]
    } else {
        b
    };
    matmul(pool, ProductShape { stored: run_as, m, n, k }, a, b, c, accumulate);
}

/// y [cols, rows] = transposed x [rows, cols].
fn transpose<S: Stored>(pool: &Pool, rows: usize, cols: usize, x: &[S], y: &mut [S]) {
    assert_eq!((x.len(), y.len()), (rows * cols, rows * cols));
    if rows * cols == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(cols, rows).next_multiple_of(BLOCK);
    pool.each(y.chunks_mut(per_piece * rows).enumerate(), |(piece, y)| {
        for (band, y) in y.chunks_mut(BLOCK * rows).enumerate() {
            let left = piece * per_piece + band * BLOCK;
            for top in (0..rows).step_by(BLOCK) {
                let height = BLOCK.min(rows - top);
                turn(height, y.len() / rows, &x[top * cols + left..], cols, &mut y[top..], rows);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use half::bf16;

    fn check<S: Stored>(rows: usize, cols: usize) {
        let x: Vec<S> = (0..rows * cols).map(|i| S::rounded(S::Real::from_f64(i as f64))).collect();
        for threads in [1, 2, 3] {
            let mut y = vec![S::ZERO; x.len()];
            transpose(&Pool::new(threads), rows, cols, &x, &mut y);
            let wrong = (0..y.len()).find(|i| y[*i] != x[i % rows * cols + i / rows]);
            assert_eq!(wrong, None, "{rows} x {cols} with {threads} threads");
        }
    }

    #[test]
    fn sizes_around_blocks_and_pieces_are_transposed_whole() {
        let sides = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1];
        let blocks = sides.into_iter().flat_map(|rows| sides.map(|cols| (rows, cols)));
        // One piece of 32768 elements, two, and a rest.
        let pieces = [(512, 63), (512, 64), (512, 65), (512, 128), (512, 129), (129, 700)];
        for (rows, cols) in blocks.chain(pieces) {
            check::<f32>(rows, cols);
            check::<f64>(rows, cols);
            check::<bf16>(rows, cols);
        }
    }
}
