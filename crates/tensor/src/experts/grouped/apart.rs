//! Products of experts, each computed by [`matmul`] of rows that are brought together: for processors that multiply what
//! is stored themselves.

use super::{GroupedShape, pieces};
use crate::matmul::{Transpose, matmul};
use crate::pool::{Disjoint, Pool};
use crate::shape::ProductShape;
use crate::stored::Stored;

/// [`super::grouped_matmul`], lengths checked.
pub(super) fn products<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: GroupedShape,
    a: &[S],
    b: &[S],
    c: &mut [C],
    accumulate: bool,
) {
    let c = Disjoint::new(c);
    let work = |pool: &Pool, block: usize| match shape.stored {
        Transpose::Tn => weight_gradient(pool, shape, block, a, b, &c, accumulate),
        _ => rows_product(pool, shape, block, a, b, &c, accumulate),
    };
    if shape.blocks < pool.threads() {
        return (0..shape.blocks).for_each(|block| work(pool, block));
    }
    let alone = Pool::new(1);
    pool.each(0..shape.blocks, |block| work(&alone, block));
}

/// A block of `Tn`.
fn weight_gradient<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: GroupedShape,
    block: usize,
    a: &[S],
    b: &[S],
    c: &Disjoint<'_, C>,
    accumulate: bool,
) {
    let GroupedShape { stored, n, k: m, .. } = shape;
    // SAFETY: no other block writes this one's part.
    let c = unsafe { c.part(block * m * n, m * n) };
    let product = ProductShape { stored, m, n, k: shape.block_rows() };
    together(shape, block, a, m, |a| together(shape, block, b, n, |b| matmul(pool, product, a, b, c, accumulate)));
}

/// A block of `Nn` or `Nt`.
fn rows_product<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: GroupedShape,
    block: usize,
    a: &[S],
    b: &[S],
    c: &Disjoint<'_, C>,
    accumulate: bool,
) {
    let GroupedShape { stored, segments, n, k, .. } = shape;
    let m = shape.block_rows();
    let (product, b) = (ProductShape { stored, m, n, k }, &b[block * k * n..(block + 1) * k * n]);
    // SAFETY: no other block writes this one's rows, which are asked for one piece at a time.
    let rows =
        || pieces(shape.blocks, shape.chunk, block, 0..m).map(|rows| unsafe { c.part(rows.start * n, rows.len() * n) });
    together(shape, block, a, k, |a| {
        if segments == 1 {
            return rows().for_each(|c| matmul(pool, product, a, b, c, accumulate));
        }
        C::with_scratch(m * n, |sums| {
            let each = |sums: &mut [C], copy: &dyn Fn(&mut [C], &mut [C])| {
                rows().zip(sums.chunks_exact_mut((shape.chunk * n).max(1))).for_each(|(c, sums)| copy(c, sums));
            };
            if accumulate {
                each(sums, &|c, sums| sums.copy_from_slice(c));
            }
            matmul(pool, product, a, b, sums, accumulate);
            each(sums, &|c, sums| c.copy_from_slice(sums));
        });
    });
}

/// Calls `work` with a block's rows of x [R, cols], one below the other.
fn together<S: Stored>(shape: GroupedShape, block: usize, x: &[S], cols: usize, work: impl FnOnce(&[S])) {
    let rows = shape.block_rows();
    if shape.segments == 1 {
        return work(&x[block * rows * cols..(block + 1) * rows * cols]);
    }
    S::with_scratch(rows * cols, |scratch| {
        let pieces = pieces(shape.blocks, shape.chunk, block, 0..rows);
        for (rows, to) in pieces.zip(scratch.chunks_exact_mut((shape.chunk * cols).max(1))) {
            to.copy_from_slice(&x[rows.start * cols..rows.end * cols]);
        }
        work(scratch);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experts::grouped::tiles;
    use half::bf16;

    /// Small integers, whose sums are exact in any order.
    fn integers<S: Stored<Real = f32>>(len: usize) -> Vec<S> {
        (0..len).map(|i| S::rounded((i * i % 11) as f32 - 5.0)).collect()
    }

    #[test]
    fn products_apart_are_those_of_tiles() {
        for (blocks, segments, chunk, n, k) in [(3, 1, 20, 33, 7), (2, 4, 9, 70, 65), (1, 3, 5, 9, 2), (5, 2, 0, 3, 4)]
        {
            for (stored, accumulate) in Transpose::ALL.into_iter().flat_map(|stored| [(stored, false), (stored, true)])
            {
                let shape = GroupedShape { stored, blocks, segments, chunk, n, k };
                let (rows, weights) = (shape.rows(), blocks * n * k);
                let lens = if stored == Transpose::Tn { (rows * n, weights) } else { (weights, rows * n) };
                let (a, b) = (integers::<bf16>(rows * k), integers::<bf16>(lens.0));
                let mut expected = integers::<bf16>(lens.1);
                tiles::products(&Pool::new(1), shape, &a, &b, &mut expected, accumulate);
                for threads in [1, 2, 4] {
                    let mut c = integers::<bf16>(lens.1);
                    products(&Pool::new(threads), shape, &a, &b, &mut c, accumulate);
                    assert_eq!(c, expected, "{shape:?} with {threads} threads");
                }
            }
        }
    }
}
