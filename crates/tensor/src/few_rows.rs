//! Products of few rows, as passes of single tokens have: each element of B is used only a few times, so what counts is
//! that B is read once, in the order of memory, by all threads.
//!
//! Letters: C [m, n] = A [m, k] op(B).

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::dot;
use crate::matmul::Transpose;
use crate::pool::{Disjoint, Pool};
use crate::shape::ProductShape;

/// Products with at least this many rows are left to [`crate::matmul`].
pub const FEW_ROWS: usize = 16;

/// C = A op(B), with B stored [k, n] (`Nn`) or [n, k] (`Nt`): 2 m n k FLOPs. Bits do not depend on the number of threads.
///
/// # Panics
/// If `layout` is `Tn`.
pub fn matmul_few_rows<T: Element>(pool: &Pool, shape: ProductShape, a: &[T], b: &[T], c: &mut [T]) {
    let ProductShape { stored: layout, m, n, k } = shape;
    assert!(layout != Transpose::Tn, "a weight's gradient has no few rows");
    assert_eq!((a.len(), b.len(), c.len()), (m * k, k * n, m * n), "{layout:?} {m}x{n}x{k}");
    if k == 0 {
        return c.fill(T::ZERO);
    }
    let per_piece = pool.rows_per_piece(n, k);
    let c = Disjoint::new(c);
    pool.each((0..n).step_by(per_piece), |first| {
        let cols = per_piece.min(n - first);
        // SAFETY: this piece alone writes its columns of row i, one row at a time.
        let row = |i: usize| unsafe { c.part(i * n + first, cols) };
        vectorised(
            #[inline(always)]
            || match layout {
                Transpose::Nt => {
                    for (j, b) in b[first * k..(first + cols) * k].chunks_exact(k).enumerate() {
                        for (i, a) in a.chunks_exact(k).enumerate() {
                            row(i)[j] = dot(a, b);
                        }
                    }
                }
                _ => add_rows(n, first, a, b, k, row),
            },
        );
    });
}

/// The columns from `first` on that `row` gives of each row of C: four rows of B at a time, for all rows of A.
#[inline(always)]
fn add_rows<'c, T: Element>(n: usize, first: usize, a: &[T], b: &[T], k: usize, row: impl Fn(usize) -> &'c mut [T]) {
    let b = |p: usize, cols: usize| &b[p * n + first..p * n + first + cols];
    for p in (0..k).step_by(4) {
        for (i, a) in a.chunks_exact(k).enumerate() {
            let c = row(i);
            if p == 0 {
                c.fill(T::ZERO);
            }
            if let [a0, a1, a2, a3] = a[p..k.min(p + 4)] {
                let cols = c.len();
                let pairs = b(p, cols).iter().zip(b(p + 1, cols)).zip(b(p + 2, cols).iter().zip(b(p + 3, cols)));
                for (c, ((b0, b1), (b2, b3))) in c.iter_mut().zip(pairs) {
                    *c += (a0 * *b0 + a1 * *b1) + (a2 * *b2 + a3 * *b3);
                }
            } else {
                for (offset, a) in a[p..].iter().enumerate() {
                    let cols = c.len();
                    c.iter_mut().zip(b(p + offset, cols)).for_each(|(c, b)| *c += *a * *b);
                }
            }
        }
    }
}
