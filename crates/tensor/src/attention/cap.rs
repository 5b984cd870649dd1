//! The soft cap of attention scores (Gemma 2): cap * tanh(score / cap), between -cap and cap.

use crate::element::Element;

/// Caps scores in place.
#[inline(always)]
pub(super) fn soften<T: Element>(scores: &mut [T], cap: T) {
    let (two, inverse) = (T::ONE + T::ONE, T::ONE / cap);
    for score in scores {
        // tanh x = 1 - 2 / (e^(2 x) + 1), whose limits are exact.
        let tanh = T::ONE - two / ((two * *score * inverse).exp() + T::ONE);
        *score = cap * tanh;
    }
}

/// The derivative of the cap where it gave `capped`: 1 - tanh^2.
#[inline(always)]
pub(super) fn slope<T: Element>(capped: T, cap: T) -> T {
    let tanh = capped / cap;
    T::ONE - tanh * tanh
}
