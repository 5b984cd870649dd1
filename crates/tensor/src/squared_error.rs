//! Squared error of predicted numbers, fused with its gradient; targets are in `f64`, as data gives
//! them.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Pool;
use crate::stored::Stored;

/// Elements per partial sum of the loss.
const SUM_BLOCK: usize = 64 << 10;
/// Accumulators of a sum.
const LANES: usize = 32;

/// y = x, rounded to what is computed in and then to what is stored.
pub fn rounded<S: Stored>(pool: &Pool, x: &[f64], y: &mut [S]) {
    assert_eq!(x.len(), y.len());
    let piece = pool.piece(y.len());
    pool.each(y.chunks_mut(piece).zip(x.chunks(piece)), |(y, x)| {
        vectorised(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, x)| *y = S::rounded(S::Real::from_f64(*x))),
        );
    });
}

/// x, the predictions, become the gradient 2 (x - target) scale; returns the sum of the squares of
/// x - target, in `f64`.
pub fn squared_error<S: Stored>(pool: &Pool, x: &mut [S], targets: &[f64], scale: S::Real) -> f64 {
    assert_eq!(x.len(), targets.len());
    let mut partials = vec![0.0; x.len().div_ceil(SUM_BLOCK)];
    let pieces = partials.iter_mut().zip(x.chunks_mut(SUM_BLOCK).zip(targets.chunks(SUM_BLOCK)));
    pool.each(pieces, |(partial, (x, targets))| {
        *partial = vectorised(
            #[inline(always)]
            || differences(x, targets, scale + scale),
        );
    });
    partials.iter().sum()
}

/// The sum of the squares of x - target, in `f64`; as [`squared_error`] returns it, bit for bit.
pub fn squared_error_loss<S: Stored>(pool: &Pool, x: &[S], targets: &[f64]) -> f64 {
    assert_eq!(x.len(), targets.len());
    let mut partials = vec![0.0; x.len().div_ceil(SUM_BLOCK)];
    let pieces = partials.iter_mut().zip(x.chunks(SUM_BLOCK).zip(targets.chunks(SUM_BLOCK)));
    pool.each(pieces, |(partial, (x, targets))| {
        *partial = vectorised(
            #[inline(always)]
            || squares(x, targets),
        );
    });
    partials.iter().sum()
}

#[inline(always)]
fn squares<S: Stored>(x: &[S], targets: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for (x, targets) in x.chunks(LANES).zip(targets.chunks(LANES)) {
        for ((x, target), lane) in x.iter().zip(targets).zip(&mut lanes) {
            let difference = x.widen() - S::Real::from_f64(*target);
            *lane += difference.to_f64() * difference.to_f64();
        }
    }
    lanes.iter().sum()
}

#[inline(always)]
fn differences<S: Stored>(x: &mut [S], targets: &[f64], twice: S::Real) -> f64 {
    let mut lanes = [0.0; LANES];
    for (x, targets) in x.chunks_mut(LANES).zip(targets.chunks(LANES)) {
        for ((x, target), lane) in x.iter_mut().zip(targets).zip(&mut lanes) {
            let difference = x.widen() - S::Real::from_f64(*target);
            *lane += difference.to_f64() * difference.to_f64();
            *x = S::rounded(difference * twice);
        }
    }
    lanes.iter().sum()
}
