//! The soft cap of attention scores and of logits (Gemma 2): cap * tanh(x / cap), between -cap and cap.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Pool;
use crate::stored::Stored;

/// Caps scores in place.
#[inline(always)]
pub(crate) fn soften<T: Element>(scores: &mut [T], cap: T) {
    let inverse = T::ONE / cap;
    for score in scores {
        *score = softened(*score, cap, inverse);
    }
}

/// x = cap * tanh(x / cap).
pub fn cap<S: Stored>(pool: &Pool, x: &mut [S], cap: S::Real) {
    let piece = pool.piece(x.len());
    let inverse = S::Real::ONE / cap;
    pool.each(x.chunks_mut(piece), |x| {
        vectorised(
            #[inline(always)]
            || x.iter_mut().for_each(|x| *x = S::rounded(softened(x.widen(), cap, inverse))),
        );
    });
}

#[inline(always)]
fn softened<T: Element>(x: T, cap: T, inverse: T) -> T {
    let two = T::ONE + T::ONE;
    // tanh x = 1 - 2 / (e^(2 x) + 1), whose limits are exact.
    cap * (T::ONE - two / ((two * x * inverse).exp() + T::ONE))
}

/// The derivative of the cap where it gave `capped`: 1 - tanh^2.
#[inline(always)]
pub(crate) fn slope<T: Element>(capped: T, cap: T) -> T {
    let tanh = capped / cap;
    T::ONE - tanh * tanh
}
