//! Products of few rows, as passes of single tokens have: each element of B is used only a few times, so what counts is
//! that B is read once, in the order of memory, by all threads.
//!
//! Letters: C [m, n] = A [m, k] op(B).

use crate::dispatch::vectorised;
use crate::lanes::dot;
use crate::matmul::Transpose;
use crate::pool::{Disjoint, Pool};
use crate::shape::ProductShape;
use crate::stored::{Stored, round_all};

/// Products with at least this many rows are left to [`crate::matmul`].
pub const FEW_ROWS: usize = 16;

/// C = A op(B), with B stored [k, n] (`Nn`) or [n, k] (`Nt`): 2 m n k FLOPs. Bits do not depend on the number of threads.
///
/// # Panics
/// If `layout` is `Tn`.
pub fn matmul_few_rows<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: ProductShape,
    a: &[S],
    b: &[S],
    c: &mut [C],
) {
    let ProductShape { stored: layout, m, n, k } = shape;
    assert!(layout != Transpose::Tn, "a weight's gradient has no few rows");
    shape.check(a.len(), b.len(), c.len());
    if k == 0 {
        return c.fill(C::ZERO);
    }
    let per_piece = pool.rows_per_piece(n, k);
    let c = Disjoint::new(c);
    pool.each((0..n).step_by(per_piece), |first| {
        let cols = per_piece.min(n - first);
        S::Real::with_scratch(m * cols, |sums| {
            vectorised(
                #[inline(always)]
                || match layout {
                    Transpose::Nt => {
                        for (j, b) in b[first * k..(first + cols) * k].chunks_exact(k).enumerate() {
                            for (i, a) in a.chunks_exact(k).enumerate() {
                                sums[i * cols + j] = dot(a, b);
                            }
                        }
                    }
                    _ => add_rows(n, first, a, b, k, sums, cols),
                },
            );
            for (i, sums) in sums.chunks_exact(cols).enumerate() {
                // SAFETY: this piece alone writes its columns of row i.
                let c = unsafe { c.part(i * n + first, cols) };
                vectorised(
                    #[inline(always)]
                    || round_all(c, sums),
                );
            }
        });
    });
}

/// c [_, cols] = the columns from `first` on of the product: four rows of B at a time, for all rows of A.
#[inline(always)]
fn add_rows<S: Stored>(n: usize, first: usize, a: &[S], b: &[S], k: usize, c: &mut [S::Real], cols: usize) {
    let b = |p: usize| &b[p * n + first..p * n + first + cols];
    c.fill(S::Real::ZERO);
    for p in (0..k).step_by(4) {
        for (a, c) in a.chunks_exact(k).zip(c.chunks_exact_mut(cols)) {
            if let [a0, a1, a2, a3] = a[p..k.min(p + 4)] {
                let [a0, a1, a2, a3] = [a0, a1, a2, a3].map(S::widen);
                let pairs = b(p).iter().zip(b(p + 1)).zip(b(p + 2).iter().zip(b(p + 3)));
                for (c, ((b0, b1), (b2, b3))) in c.iter_mut().zip(pairs) {
                    *c += (a0 * b0.widen() + a1 * b1.widen()) + (a2 * b2.widen() + a3 * b3.widen());
                }
            } else {
                for (offset, a) in a[p..].iter().enumerate() {
                    c.iter_mut().zip(b(p + offset)).for_each(|(c, b)| *c += a.widen() * b.widen());
                }
            }
        }
    }
}
