//! What keeps loads of experts equal and logits small: losses of a router, and biases that follow loads.

use super::probabilities::{divide, log_sum_exp};
use super::{RouterLosses, RouterRule, RouterShape, index, is_padding};
use crate::dispatch::vectorised;
use crate::element::Element;

impl RouterLosses {
    /// Factor of an expert's count in the balance loss of a row: alpha over the mean of the counts of its scope.
    pub(super) fn per_count<T: Element>(self, counts: &[T]) -> f64 {
        self.balance * (counts.len() as f64 / counts.iter().map(|count| count.to_f64()).sum::<f64>())
    }
}

/// counts [scopes, E] = how often each expert is chosen by the tokens of each scope, dropped choices
/// included, added to what is there if wanted; `scope(row)` is the number of a row's scope.
pub fn count_choices<T: Element>(
    shape: RouterShape,
    routes: &[T],
    scope: impl Fn(usize) -> usize,
    counts: &mut [T],
    accumulate: bool,
) {
    let RouterShape { rows, experts, per_token } = shape;
    assert_eq!(routes.len(), rows * 3 * per_token);
    if !accumulate {
        counts.fill(T::ZERO);
    }
    for (row, routes) in routes.chunks_exact((3 * per_token).max(1)).enumerate() {
        if is_padding(routes) {
            continue;
        }
        let counts = &mut counts[scope(row) * experts..][..experts];
        routes[..per_token].iter().for_each(|expert| counts[index(*expert)] += T::ONE);
    }
}

/// Moves the biases of experts by `rate`, up where the load is below the mean, all tokens' `choices` divided by
/// `experts`, and down where it is above. Loads are whole numbers; those beyond what T has are above the mean.
pub fn follow_loads<T: Element>(rate: f64, choices: usize, experts: usize, loads: &[T], bias: &mut [T]) {
    assert_eq!(loads.len(), bias.len());
    let rate = T::from_f64(rate);
    for (bias, load) in bias.iter_mut().zip(loads) {
        let below = choices as f64 - load.to_f64() * experts as f64;
        if below > 0.0 {
            *bias += rate;
        } else if below < 0.0 {
            *bias -= rate;
        }
    }
}

/// The sums over tokens of alpha sum_e f_e p_e and of beta lse^2: f the frequencies by the counts
/// [scopes, E] of a row's scope, p the row's probabilities, divided by their sum if they are
/// sigmoids, and lse the logarithm of the sum of its exponentials. 0 where the factor is 0.
pub fn router_losses<T: Element>(
    shape: RouterShape,
    rule: RouterRule,
    losses: RouterLosses,
    logits: &[T],
    routes: &[T],
    counts: &[T],
    scope: impl Fn(usize) -> usize,
) -> (f64, f64) {
    let RouterShape { rows, experts, per_token } = shape;
    assert_eq!((logits.len(), routes.len()), (rows * experts, rows * 3 * per_token));
    let tokens = |row: &usize| !is_padding(&routes[row * 3 * per_token..][..per_token]);
    let logits = || (0..rows).filter(tokens).map(|row| (row, &logits[row * experts..][..experts]));
    let balance = |(row, logits): (usize, _)| {
        let counts = &counts[scope(row) * experts..][..experts];
        losses.per_count(counts) * row_balance(rule, logits, counts)
    };
    let z = |logits| {
        vectorised(
            #[inline(always)]
            || log_sum_exp(logits).powi(2),
        )
    };
    (
        if losses.balance == 0.0 { 0.0 } else { logits().map(balance).sum() },
        if losses.z == 0.0 { 0.0 } else { logits().map(|(_, logits)| losses.z * z(logits)).sum() },
    )
}

/// Number of tokens' choices in routes [rows, 3 k] that are dropped.
pub fn dropped_choices<T: Element>(shape: RouterShape, routes: &[T]) -> u64 {
    let RouterShape { rows, per_token, .. } = shape;
    assert_eq!(routes.len(), rows * 3 * per_token);
    let tokens = routes.chunks_exact((3 * per_token).max(1)).filter(|routes| !is_padding(routes));
    let slots = tokens.flat_map(|routes| &routes[per_token..2 * per_token]);
    slots.filter(|slot| slot.to_f64() < 0.0).count() as u64
}

/// The sum of a row's probabilities times counts.
fn row_balance<T: Element>(rule: RouterRule, logits: &[T], counts: &[T]) -> f64 {
    T::with_scratch(logits.len(), |p| {
        vectorised(
            #[inline(always)]
            || {
                rule.probabilities(logits, p);
                if rule.sigmoid {
                    divide(p);
                }
            },
        );
        p.iter().zip(counts).map(|(p, count)| p.to_f64() * count.to_f64()).sum()
    })
}
