//! What norms of the processor read beside their rows.

use quadrille_tensor::{Element, Stored};

use super::memory::Numbers;
use super::{Gamma, Statistics};
use crate::Values;

/// Calls `with` what a norm multiplies columns with.
pub(super) fn factors<S: Values, R>(gamma: Gamma<Numbers<'_, S>>, with: impl FnOnce(&[S::Real]) -> R) -> R {
    let stored = gamma.stored.real();
    if !gamma.offset {
        return with(stored);
    }
    <S::Real as Stored>::with_scratch(stored.len(), |factors| {
        factors.iter_mut().zip(stored).for_each(|(factor, gamma)| *factor = S::Real::ONE + *gamma);
        with(factors)
    })
}

/// The sums and beta, or the gradient of beta, that a layer norm has.
pub(super) fn centered<S: Values, V>(
    statistics: Statistics<Numbers<'_, S>>,
    vector: Option<V>,
) -> Option<(&[S::Real], V)> {
    statistics.sums.map(Numbers::real).zip(vector)
}
