//! Operations on flat arrays.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::add;
use crate::pool::Pool;
use crate::stored::Stored;

/// Elements per partial sum of [`sum_of_squares`].
const SUM_BLOCK: usize = 64 << 10;

/// y += x.
pub fn add_assign<S: Stored, X: Stored<Real = S::Real>>(pool: &Pool, y: &mut [S], x: &[X]) {
    assert_eq!(y.len(), x.len());
    let piece = pool.piece(y.len());
    pool.each(y.chunks_mut(piece).zip(x.chunks(piece)), |(y, x)| add(y, x));
}

/// y = x.
pub fn copy<S: Stored>(pool: &Pool, y: &mut [S], x: &[S]) {
    assert_eq!(y.len(), x.len());
    let piece = pool.piece(y.len());
    pool.each(y.chunks_mut(piece).zip(x.chunks(piece)), |(y, x)| y.copy_from_slice(x));
}

/// y = x, rounded to what is stored.
pub fn round<S: Stored>(pool: &Pool, y: &mut [S], x: &[S::Real]) {
    assert_eq!(y.len(), x.len());
    let piece = pool.piece(y.len());
    pool.each(y.chunks_mut(piece).zip(x.chunks(piece)), |(y, x)| {
        vectorised(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, x)| *y = S::rounded(*x)),
        );
    });
}

/// The sum of the squares of x, in `f64`.
pub fn sum_of_squares<S: Stored>(pool: &Pool, x: &[S]) -> f64 {
    let mut partials = vec![0.0; x.len().div_ceil(SUM_BLOCK)];
    // Several blocks to a piece, so that short arrays wake nobody.
    let blocks = pool.piece(x.len()).div_ceil(SUM_BLOCK);
    pool.each(partials.chunks_mut(blocks).zip(x.chunks(blocks * SUM_BLOCK)), |(partials, x)| {
        for (partial, x) in partials.iter_mut().zip(x.chunks(SUM_BLOCK)) {
            *partial = vectorised(
                #[inline(always)]
                || squares(x),
            );
        }
    });
    partials.iter().sum()
}

#[inline(always)]
fn squares<S: Stored>(x: &[S]) -> f64 {
    const LANES: usize = 32;
    let mut lanes = [0.0; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            let x = chunk[i].widen().to_f64();
            lanes[i] += x * x;
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += x.widen().to_f64() * x.widen().to_f64();
    }
    lanes.iter().sum()
}

/// x *= factor.
pub fn scale<S: Stored>(pool: &Pool, x: &mut [S], factor: S::Real) {
    let piece = pool.piece(x.len());
    pool.each(x.chunks_mut(piece), |x| {
        vectorised(
            #[inline(always)]
            || x.iter_mut().for_each(|x| *x = S::rounded(x.widen() * factor)),
        );
    });
}
