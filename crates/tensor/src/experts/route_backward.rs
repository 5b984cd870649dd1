//! The gradient of a router's logits, of the weights and of the losses.

use super::probabilities::{divide, log_sum_exp, softmax};
use super::{RouterLosses, RouterRule, RouterShape, index, is_padding};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::dot;
use crate::pool::Pool;

/// logits [rows, E] become their gradient, given that of the weights, dweights [rows, k], 0 where a
/// choice is dropped; with it that of [`super::router_losses`] times `factor`, given the counts
/// [scopes, E], which are constants. That of padding is 0.
pub fn route_backward<T: Element>(
    pool: &Pool,
    shape: RouterShape,
    rule: RouterRule,
    losses: RouterLosses,
    factor: f64,
    logits: &mut [T],
    routes: &[T],
    counts: &[T],
    dweights: &[T],
    scope: impl Fn(usize) -> usize + Sync,
) {
    let RouterShape { rows, experts, per_token } = shape;
    assert_eq!(logits.len(), rows * experts);
    assert_eq!((routes.len(), dweights.len()), (rows * 3 * per_token, rows * per_token));
    if rows * experts == 0 {
        return;
    }
    let piece = pool.rows_per_piece(rows, experts);
    pool.each(logits.chunks_mut(piece * experts).enumerate(), |(i, logits)| {
        T::with_scratch(3 * experts, |scratch| {
            for (row, logits) in logits.chunks_exact_mut(experts).enumerate() {
                let row = i * piece + row;
                let choices = row * per_token..(row + 1) * per_token;
                let chosen = &routes[3 * choices.start..][..per_token];
                if is_padding(chosen) {
                    logits.fill(T::ZERO);
                    continue;
                }
                let counts: &[T] = if losses.balance == 0.0 { &[] } else { &counts[scope(row) * experts..][..experts] };
                let balance = if losses.balance == 0.0 { 0.0 } else { losses.per_count(counts) * factor };
                let losses = RowLosses { balance: T::from_f64(balance), z: 2.0 * losses.z * factor, counts };
                vectorised(
                    #[inline(always)]
                    || row_backward(rule, losses, logits, chosen, &dweights[choices], scratch),
                );
            }
        });
    });
}

/// What a row's gradient of the losses is made of.
struct RowLosses<'a, T> {
    /// Of a probability's gradient, by count.
    balance: T,
    /// Of the gradient of the logarithm of the sum of exponentials, by that logarithm.
    z: f64,
    /// By expert; none if there is no balance loss.
    counts: &'a [T],
}

/// A row of logits becomes its gradient.
#[inline(always)]
fn row_backward<T: Element>(
    rule: RouterRule,
    losses: RowLosses<'_, T>,
    logits: &mut [T],
    chosen: &[T],
    dweights: &[T],
    scratch: &mut [T],
) {
    let (p, rest) = scratch.split_at_mut(logits.len());
    let (dp, other) = rest.split_at_mut(logits.len());
    rule.probabilities(logits, p);
    dp.fill(T::ZERO);
    add_balance(rule, &losses, p, dp, other);
    add_choices(rule, p, chosen, dweights, dp);
    let slope = if losses.z == 0.0 {
        other.fill(T::ZERO);
        T::ZERO
    } else {
        softmax(logits, other);
        T::from_f64(losses.z * log_sum_exp(logits))
    };
    let mean = dot(dp, p);
    for (((dlogit, p), dp), softmax) in logits.iter_mut().zip(p).zip(dp).zip(other) {
        let of_rule = if rule.sigmoid { *dp * *p * (T::ONE - *p) } else { *p * (*dp - mean) };
        *dlogit = of_rule + slope * *softmax;
    }
}

/// dp += the gradient of the balance loss; the shares of the probabilities are left in `shares`.
#[inline(always)]
fn add_balance<T: Element>(rule: RouterRule, losses: &RowLosses<'_, T>, p: &[T], dp: &mut [T], shares: &mut [T]) {
    if losses.counts.is_empty() {
        return;
    }
    let mut slope = losses.balance;
    let mut mean = T::ZERO;
    if rule.sigmoid {
        shares.copy_from_slice(p);
        slope = slope / divide(shares);
        mean = dot(losses.counts, shares);
    }
    dp.iter_mut().zip(losses.counts).for_each(|(dp, count)| *dp += slope * (*count - mean));
}

/// dp += the gradient of the weights of the chosen experts.
#[inline(always)]
fn add_choices<T: Element>(rule: RouterRule, p: &[T], chosen: &[T], dweights: &[T], dp: &mut [T]) {
    let mut slope = T::from_f64(rule.scale);
    let mut mean = T::ZERO;
    if rule.normalize {
        let mut total = T::ZERO;
        for (expert, dw) in chosen.iter().zip(dweights) {
            total += p[index(*expert)];
            mean += p[index(*expert)] * *dw;
        }
        mean = mean / total;
        slope = slope / total;
    }
    for (expert, dw) in chosen.iter().zip(dweights) {
        dp[index(*expert)] += slope * (*dw - mean);
    }
}
