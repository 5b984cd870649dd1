//! The choice of experts and of their slots.

use std::cmp::Reverse;

use super::{RouterRule, RouterShape, TokenGroups, index, is_padding};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Pool;

/// From here on not every whole number is an `f32`.
const EXACT: usize = 1 << 24;

/// routes [rows, 3 k] of logits [rows, E]: each token's k experts of the largest probabilities, to
/// which that expert's bias is added if there is one, in descending order, of equal ones that with the lower
/// number first, where the rule has groups of experts only of those that are chosen; their slots, -1 where
/// the tokens' group has used up the expert's; and their weights, which neither bias nor dropping change.
///
/// `present` has an entry for each row, 0 for rows of padding, which choose nothing, take no slots, and bring none to their group.
///
/// Slots are taken in the order of [`TokenGroups::by_score`]; equal weights by choice, then by row. Tokens with probabilities
/// that are no numbers choose experts in turn, all about equally often.
pub fn route<T: Element>(
    pool: &Pool,
    shape: RouterShape,
    rule: RouterRule,
    groups: TokenGroups,
    present: &[u32],
    logits: &[T],
    bias: Option<&[T]>,
    routes: &mut [T],
) {
    let RouterShape { rows, experts, per_token } = shape;
    let width = 3 * per_token;
    assert_eq!((present.len(), logits.len(), routes.len()), (rows, rows * experts, rows * width));
    assert!(per_token <= experts && rows.is_multiple_of(groups.rows), "{shape:?} {groups:?}");
    if rows * width == 0 {
        return;
    }
    assert!(rows / groups.rows * groups.slots <= EXACT && experts <= EXACT, "{shape:?} {groups:?}");
    assert!(experts.is_multiple_of(rule.groups) && rule.chosen_groups <= rule.groups, "{shape:?} {rule:?}");
    assert!(rule.groups == 1 || per_token.is_multiple_of(rule.chosen_groups), "{shape:?} {rule:?}");
    assert!(per_token <= experts / rule.groups * rule.chosen_groups, "{shape:?} {rule:?}");
    let piece = pool.rows_per_piece(rows, experts);
    let pieces = routes.chunks_mut(piece * width).zip(logits.chunks(piece * experts)).enumerate();
    pool.each(pieces, |(number, (routes, logits))| {
        T::with_scratch(3 * experts + rule.groups, |scratch| {
            let (p, rest) = scratch.split_at_mut(experts);
            let (keys, rest) = rest.split_at_mut(experts);
            let (copy, sums) = rest.split_at_mut(experts);
            let rows = routes.chunks_exact_mut(width).zip(logits.chunks_exact(experts));
            for (row, (routes, logits)) in (number * piece..).zip(rows) {
                if present[row] == 0 {
                    routes.fill(-T::ONE);
                    routes[2 * per_token..].fill(T::ZERO);
                    continue;
                }
                vectorised(
                    #[inline(always)]
                    || rule.probabilities(logits, p),
                );
                keys.copy_from_slice(p);
                if p.iter().any(|p| p.to_f64().is_nan()) {
                    take_turns(row * per_token, keys);
                } else if let Some(bias) = bias {
                    keys.iter_mut().zip(bias).for_each(|(key, bias)| *key += *bias);
                }
                if rule.groups > rule.chosen_groups {
                    close_groups(rule, per_token, keys, copy, sums);
                }
                choose(rule, p, keys, routes);
            }
        });
    });
    pool.each(routes.chunks_mut(groups.rows * width).enumerate(), |(group, routes)| {
        take_slots(shape, groups, group, routes);
    });
}

/// Keys by which experts are chosen in turn from this one on: what comes of a diverged model finds room at all of them.
fn take_turns<T: Element>(first: usize, keys: &mut [T]) {
    let experts = keys.len();
    let distance = |expert: usize| (expert + experts - first % experts) % experts;
    keys.iter_mut().enumerate().for_each(|(expert, key)| *key = T::from_f64(-(distance(expert) as f64)));
}

/// Makes keys minus infinity but those of the groups with the largest sums of largest keys, of equal ones the first; `copy` is
/// of keys, `sums` of groups.
fn close_groups<T: Element>(rule: RouterRule, per_token: usize, keys: &mut [T], copy: &mut [T], sums: &mut [T]) {
    let size = keys.len() / rule.groups;
    copy.copy_from_slice(keys);
    for (sum, keys) in sums.iter_mut().zip(copy.chunks_exact_mut(size)) {
        *sum = T::ZERO;
        for _ in 0..per_token / rule.chosen_groups {
            let largest = largest_key(keys);
            *sum += std::mem::replace(&mut keys[largest], T::NEG_INFINITY);
        }
    }
    // What is chosen is not chosen again.
    (0..rule.chosen_groups).for_each(|_| sums[largest_key(sums)] = T::NEG_INFINITY);
    for (sum, keys) in sums.iter().zip(keys.chunks_exact_mut(size)) {
        if *sum != T::NEG_INFINITY {
            keys.fill(T::NEG_INFINITY);
        }
    }
}

/// The experts of the largest keys and their weights, in a row of routes; uses up the keys.
fn choose<T: Element>(rule: RouterRule, p: &[T], keys: &mut [T], routes: &mut [T]) {
    let per_token = routes.len() / 3;
    let (chosen, weights) = routes.split_at_mut(2 * per_token);
    let mut total = T::ZERO;
    for (chosen, weight) in chosen.iter_mut().zip(weights.iter_mut()) {
        let expert = largest_key(keys);
        // Less than any key: it is not chosen again.
        keys[expert] = T::NEG_INFINITY;
        *weight = p[expert];
        *chosen = T::from_f64(expert as f64);
        total += *weight;
    }
    let scale = T::from_f64(rule.scale);
    weights.iter_mut().for_each(|w| *w = if rule.normalize { *w / total * scale } else { *w * scale });
}

/// The first of the largest keys. What is not a number is chosen, too, but minus infinity never.
fn largest_key<T: Element>(keys: &[T]) -> usize {
    let mut candidates = (0..keys.len()).filter(|expert| keys[*expert] != T::NEG_INFINITY);
    let first = candidates.next().expect("a token chooses no more than all experts");
    candidates.fold(first, |most, expert| if keys[expert] > keys[most] { expert } else { most })
}

/// A weight, rounded to 13 binary digits: those that differ by the rounding of sums alone are equal, unless they lie beside the
/// middle between two of these numbers. Larger ones are larger.
fn rounded(weight: f64) -> u64 {
    const DROPPED: u32 = f64::MANTISSA_DIGITS - 1 - 12;
    weight.to_bits().saturating_add(1 << (DROPPED - 1)) >> DROPPED
}

/// The slots of a group's routes.
fn take_slots<T: Element>(shape: RouterShape, groups: TokenGroups, group: usize, routes: &mut [T]) {
    let rows = groups.rows;
    let per_token = shape.per_token;
    let width = 3 * per_token;
    let at = |i: usize| (i % rows * width, i / rows);
    let tokens = (0..rows * per_token).map(at).filter(|(row, _)| !is_padding(&routes[*row..][..width]));
    // Choice by choice, each by row: the order that the sort leaves equal weights in.
    let mut order: Vec<usize> = tokens.map(|(row, choice)| row + choice).collect();
    if groups.by_score {
        let weight = |i: &usize| rounded(routes[i + 2 * per_token].to_f64());
        order.sort_by_key(|i| Reverse(weight(i)));
    }
    let slots = groups.slots_of(order.len() / per_token);
    let mut taken = vec![0; shape.experts];
    for i in order {
        let taken = &mut taken[index(routes[i])];
        let slot = (*taken < slots).then(|| group * groups.slots + *taken);
        *taken += 1;
        routes[i + per_token] = slot.map_or(-T::ONE, |slot| T::from_f64(slot as f64));
    }
}
