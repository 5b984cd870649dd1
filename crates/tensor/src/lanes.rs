//! Sums and maxima in a fixed order: independent accumulators that the compiler keeps in vector
//! registers, and blocks of rows for column sums.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Pool;
use crate::stored::Stored;

/// Accumulators of a reduction along a row.
const LANES: usize = 32;
/// Blocks of rows whose column sums are formed apart and added in order: their number, not that
/// of the threads, determines the rounding.
const BLOCKS: usize = 16;

/// Folds `term(x)` over `x`.
#[inline(always)]
fn fold<S: Stored>(
    x: &[S],
    start: S::Real,
    term: impl Fn(S::Real) -> S::Real,
    combine: impl Fn(S::Real, S::Real) -> S::Real,
) -> S::Real {
    let mut lanes = [start; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    let mut wide = [start; LANES];
    for chunk in chunks {
        // Apart from the sums, or the compiler takes 16-bit values one by one.
        wide.iter_mut().zip(chunk).for_each(|(wide, x)| *wide = x.widen());
        for i in 0..LANES {
            lanes[i] = combine(lanes[i], term(wide[i]));
        }
    }
    for i in 0..rest.len() {
        lanes[i] = combine(lanes[i], term(rest[i].widen()));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = combine(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Sum of `term(x)`.
#[inline(always)]
pub(crate) fn sum<S: Stored>(x: &[S], term: impl Fn(S::Real) -> S::Real) -> S::Real {
    fold(x, S::Real::ZERO, term, |a, b| a + b)
}

/// The largest of `x`, minus infinity if it is empty.
#[inline(always)]
pub(crate) fn largest<S: Stored>(x: &[S]) -> S::Real {
    fold(x, S::Real::NEG_INFINITY, |x| x, S::Real::larger)
}

/// Sum of x y over two equally long slices.
#[inline(always)]
pub(crate) fn dot<S: Stored>(x: &[S], y: &[S]) -> S::Real {
    sum_pairs(x, y, y, |x, y, _| (x * y, S::Real::ZERO)).0
}

/// Sums of both components of `term(x, y, z)` over three equally long slices.
#[inline(always)]
pub(crate) fn sum_pairs<T: Element, S: Stored<Real = T>, Z: Stored<Real = T>>(
    x: &[S],
    y: &[S],
    z: &[Z],
    term: impl Fn(T, T, T) -> (T, T),
) -> (T, T) {
    let mut first = [T::ZERO; LANES];
    let mut second = [T::ZERO; LANES];
    let xs = x.chunks_exact(LANES);
    let ys = y.chunks_exact(LANES);
    let zs = z.chunks_exact(LANES);
    let rest = xs.remainder().iter().zip(ys.remainder()).zip(zs.remainder());
    for ((x, y), z) in xs.zip(ys).zip(zs) {
        for i in 0..LANES {
            let (a, b) = term(x[i].widen(), y[i].widen(), z[i].widen());
            first[i] += a;
            second[i] += b;
        }
    }
    for (i, ((x, y), z)) in rest.enumerate() {
        let (a, b) = term(x.widen(), y.widen(), z.widen());
        first[i] += a;
        second[i] += b;
    }
    (sum(&first, |x| x), sum(&second, |x| x))
}

/// Rows in each of the fixed blocks of a column sum, never 0.
pub(crate) fn block_rows(rows: usize) -> usize {
    rows.div_ceil(BLOCKS).max(1)
}

/// Column sums over fixed blocks of rows: `work` adds a block's rows to a partial sum of
/// `outs.len() * cols` elements that starts at zero; the partial sums are added in order, the
/// i-th `cols` of them into (`accumulate`) or instead of `outs[i]`.
pub(crate) fn column_sums<T: Element, P: Send>(
    pool: &Pool,
    cols: usize,
    blocks: impl Iterator<Item = P> + Send,
    outs: &mut [&mut [T]],
    accumulate: bool,
    work: impl Fn(P, &mut [T]) + Sync,
) {
    outs.iter().for_each(|out| assert_eq!(out.len(), cols));
    let width = cols * outs.len();
    if width == 0 {
        return;
    }
    T::with_scratch(BLOCKS * width, |partials| {
        let used = blocks.size_hint().0;
        pool.each(blocks.zip(partials.chunks_exact_mut(width)), |(block, partial)| {
            partial.fill(T::ZERO);
            work(block, partial);
        });
        let partials = &partials[..used * width];
        for (i, out) in outs.iter_mut().enumerate() {
            if !accumulate {
                out.fill(T::ZERO);
            }
            for partial in partials.chunks_exact(width) {
                add(out, &partial[i * cols..(i + 1) * cols]);
            }
        }
    });
}

/// y += x, on this thread.
pub(crate) fn add<S: Stored, X: Stored<Real = S::Real>>(y: &mut [S], x: &[X]) {
    vectorised(
        #[inline(always)]
        || y.iter_mut().zip(x).for_each(|(y, x)| *y = S::rounded(y.widen() + x.widen())),
    );
}
