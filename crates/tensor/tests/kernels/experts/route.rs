use super::{RULES, biased_routes, routes, rule};
use crate::support::{assert_close, on_any_threads, random, wide};
use quadrille_tensor::*;

/// A row's probabilities by loops.
fn probabilities(rule: RouterRule, logits: &[f64]) -> Vec<f64> {
    if rule.sigmoid {
        return logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
    }
    let total: f64 = logits.iter().map(|x| x.exp()).sum();
    logits.iter().map(|x| x.exp() / total).collect()
}

/// By row its experts and weights.
fn choices(shape: RouterShape, rule: RouterRule, [logits, bias]: [&[f64]; 2]) -> Vec<Vec<(usize, f64)>> {
    let choose = |logits: &[f64]| {
        let mut chosen: Vec<_> = probabilities(rule, logits).into_iter().enumerate().collect();
        let key = |(expert, p): &(usize, f64)| p + bias[*expert];
        let groups = chosen.chunks(shape.experts / rule.groups).map(|group| {
            let mut keys: Vec<f64> = group.iter().map(key).collect();
            keys.sort_by(|a, b| b.total_cmp(a));
            keys[..shape.per_token / rule.chosen_groups].iter().sum::<f64>()
        });
        let mut groups: Vec<(usize, f64)> = groups.enumerate().collect();
        groups.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let open: Vec<usize> = groups[..rule.chosen_groups].iter().map(|group| group.0).collect();
        chosen.retain(|(expert, _)| open.contains(&(expert * rule.groups / shape.experts)));
        chosen.sort_by(|a, b| key(b).total_cmp(&key(a)).then(a.0.cmp(&b.0)));
        chosen.truncate(shape.per_token);
        let total: f64 = if rule.normalize { chosen.iter().map(|choice| choice.1).sum() } else { 1.0 };
        chosen.into_iter().map(|(expert, p)| (expert, p / total * rule.scale)).collect()
    };
    logits.chunks(shape.experts).map(choose).collect()
}

/// In 13 binary digits.
fn rounded(weight: f64) -> f64 {
    // What is next to nothing has no more digits to tell.
    if weight < 1e-300 {
        return 0.0;
    }
    let place = 2.0_f64.powi(weight.log2().floor() as i32 - 12);
    (weight / place).round() * place
}

/// The slots, expert by expert: who wants it is sorted by priority.
fn slots(shape: RouterShape, groups: TokenGroups, choices: &[Vec<(usize, f64)>]) -> Vec<Vec<f64>> {
    let mut slots = vec![vec![f64::NAN; shape.per_token]; shape.rows];
    for (group, first) in (0..shape.rows).step_by(groups.rows).enumerate() {
        for expert in 0..shape.experts {
            let rows = first..first + groups.rows;
            let all = rows.flat_map(|row| (0..shape.per_token).map(move |choice| (choice, row)));
            let mut wanted: Vec<_> = all.filter(|(choice, row)| choices[*row][*choice].0 == expert).collect();
            wanted.sort();
            if groups.by_score {
                let weight = |(choice, row): &(usize, usize)| rounded(choices[*row][*choice].1);
                wanted.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
            }
            for (i, (choice, row)) in wanted.into_iter().enumerate() {
                slots[row][choice] = if i < groups.slots { (group * groups.slots + i) as f64 } else { -1.0 };
            }
        }
    }
    slots
}

fn check<T: Element>(shape: RouterShape, rule: RouterRule, groups: TokenGroups) {
    let scaled = |seed, count, by| random::<T>(seed, count).iter().map(|x| *x * T::from_f64(by)).collect::<Vec<T>>();
    let logits = scaled(3, shape.rows * shape.experts, 3.0);
    let bias = scaled(4, shape.experts, 0.1);
    let found = on_any_threads(|pool| routes(pool, shape, rule, groups, &logits));
    check_routes(&found, shape, rule, groups, [&logits, &vec![T::ZERO; shape.experts]]);
    let found = on_any_threads(|pool| biased_routes(pool, shape, rule, groups, [&logits, &bias]));
    check_routes(&found, shape, rule, groups, [&logits, &bias]);
}

fn check_routes<T: Element>(
    found: &[T],
    shape: RouterShape,
    rule: RouterRule,
    groups: TokenGroups,
    [logits, bias]: [&[T]; 2],
) {
    let what = format!("{shape:?} {rule:?} {groups:?}");
    let choices = choices(shape, rule, [&wide(logits), &wide(bias)]);
    let slots = slots(shape, groups, &choices);
    let mut weights = (Vec::new(), Vec::new());
    for (row, found) in found.chunks(3 * shape.per_token).enumerate() {
        let (experts, rest) = found.split_at(shape.per_token);
        let (found_slots, found_weights) = rest.split_at(shape.per_token);
        let expected: Vec<_> = choices[row].iter().map(|choice| choice.0 as f64).collect();
        assert_eq!(wide(experts), expected, "{} {what} row {row}", T::NAME);
        assert_eq!(wide(found_slots), slots[row], "{} {what} row {row}", T::NAME);
        weights.0.extend_from_slice(found_weights);
        weights.1.extend(choices[row].iter().map(|choice| choice.1));
    }
    assert_close(&what, &weights.0, &weights.1);
}

#[test]
fn routes_equal_loops() {
    let shapes = [(0, 1, 3, 1), (1, 1, 1, 1), (6, 3, 4, 4), (24, 8, 5, 2), (64, 64, 33, 3), (1200, 300, 64, 6)];
    for (rows, group, experts, per_token) in shapes {
        let shape = RouterShape { rows, experts, per_token };
        let even = group * per_token / experts;
        for rule in RULES {
            for (slots, by_score) in [(0, false), (even, false), (even + 1, true), (even, true), (group, false)] {
                let groups = TokenGroups { rows: group, slots, slots_per_token: f64::INFINITY, by_score };
                check::<f64>(shape, rule, groups);
                check::<f32>(shape, rule, groups);
            }
        }
    }
}

#[test]
fn routes_of_groups_equal_loops() {
    // Experts, choices, groups, chosen groups: one expert a group, groups as large as a token's share, and larger ones.
    for [experts, per_token, groups, chosen_groups] in
        [[4, 2, 2, 1], [4, 2, 4, 2], [6, 3, 2, 1], [8, 2, 4, 2], [12, 4, 3, 2], [64, 8, 8, 4], [60, 6, 5, 3]]
    {
        let shape = RouterShape { rows: 96, experts, per_token };
        for rule in RULES {
            let rule = RouterRule { groups, chosen_groups, ..rule };
            for (slots, by_score) in [(96, false), (96 * per_token / experts, true)] {
                let slots = TokenGroups { rows: 48, slots, slots_per_token: f64::INFINITY, by_score };
                check::<f64>(shape, rule, slots);
                check::<f32>(shape, rule, slots);
            }
        }
    }
}

/// Group 0 has the largest expert, group 1 the larger sum of two.
#[test]
fn groups_are_chosen_by_as_many_experts_as_a_token_takes_of_them() {
    let logits = [0.9, -3.0, 0.8, 0.7];
    let slots = TokenGroups { rows: 1, slots: 1, slots_per_token: f64::INFINITY, by_score: false };
    let chosen = |per_token, groups, chosen_groups| {
        let shape = RouterShape { rows: 1, experts: 4, per_token };
        routes(&Pool::new(1), shape, RouterRule { groups, chosen_groups, ..SIGMOID }, slots, &logits)[..per_token]
            .to_vec()
    };
    assert_eq!(chosen(2, 1, 1), [0.0, 2.0]);
    assert_eq!(chosen(2, 2, 1), [2.0, 3.0]);
    assert_eq!(chosen(1, 2, 1), [0.0]);
}

/// Logits whose sigmoids are in the order of these numbers, one choice each.
fn slots_of(groups: TokenGroups, per_token: usize, rule: RouterRule, logits: &[f64]) -> Vec<f64> {
    let experts = 3;
    let shape = RouterShape { rows: logits.len() / experts, experts, per_token };
    let routes = routes(&Pool::new(1), shape, rule, groups, logits);
    routes.chunks(3 * per_token).flat_map(|row| row[per_token..2 * per_token].to_vec()).collect()
}

const SIGMOID: RouterRule = rule(true, false, 1.0);

/// Four tokens of three experts. By score, expert 0 is wanted by tokens 3, 0, 2, 1; expert 1 by 2, 0, 1, 3.
#[rustfmt::skip]
const FOUR: [f64; 12] = [
    0.8, 0.5, -9.0,
    0.4, 0.3, -9.0,
    0.6, 0.7, -9.0,
    0.9, 0.1, -9.0,
];

#[test]
fn first_choices_take_slots_before_second_ones() {
    let groups = TokenGroups { rows: 4, slots: 2, slots_per_token: f64::INFINITY, by_score: false };
    // First choices: 0, 0, 1, 0; of expert 0 tokens 0 and 1 fit. Second: 1, 1, 0, 1; of expert 1 one place is left.
    assert_eq!(slots_of(groups, 2, SIGMOID, &FOUR), [0.0, 1.0, 1.0, -1.0, 0.0, -1.0, -1.0, -1.0]);
}

#[test]
fn the_largest_weights_take_slots_first_whichever_choice_they_are() {
    let groups = TokenGroups { rows: 4, slots: 2, slots_per_token: f64::INFINITY, by_score: true };
    assert_eq!(slots_of(groups, 2, SIGMOID, &FOUR), [1.0, 1.0, -1.0, -1.0, 0.0, -1.0, 0.0, -1.0]);
}

#[test]
fn a_bias_chooses_and_does_not_weigh() {
    let shape = RouterShape { rows: 4, experts: 3, per_token: 1 };
    let groups = TokenGroups { rows: 4, slots: 4, slots_per_token: f64::INFINITY, by_score: false };
    let chosen = |bias: [f64; 3]| biased_routes(&Pool::new(1), shape, SIGMOID, groups, [&FOUR, &bias]);
    assert_eq!(chosen([0.0; 3]), routes(&Pool::new(1), shape, SIGMOID, groups, &FOUR));
    let last = 1.0 / (1.0 + 9.0_f64.exp());
    assert!(chosen([0.0, 0.0, 1.0]).chunks(3).all(|row| row[0] == 2.0 && (row[2] - last).abs() < 1e-15));
}

#[test]
fn groups_share_no_slots() {
    for by_score in [false, true] {
        let groups = TokenGroups { rows: 2, slots: 1, slots_per_token: f64::INFINITY, by_score };
        let found = slots_of(groups, 1, SIGMOID, &FOUR);
        // Tokens 0 and 1 want expert 0; of the second group token 2 wants expert 1 and token 3 expert 0.
        assert_eq!(found, [0.0, -1.0, 1.0, 1.0]);
    }
}

#[test]
fn equal_probabilities_go_to_the_lower_expert_and_equal_weights_to_the_earlier_row() {
    let of_groups = RouterRule { groups: 3, chosen_groups: 2, ..RULES[0] };
    let logits = [0.5; 9];
    for by_score in [false, true] {
        let shape = RouterShape { rows: 3, experts: 3, per_token: 2 };
        let groups = TokenGroups { rows: 3, slots: 2, slots_per_token: f64::INFINITY, by_score };
        let found = routes(&Pool::new(1), shape, RULES[0], groups, &logits);
        assert_eq!(routes(&Pool::new(1), shape, of_groups, groups, &logits), found);
        for (row, found) in found.chunks(6).enumerate() {
            let slot = if row < 2 { row as f64 } else { -1.0 };
            assert_eq!(found, [0.0, 1.0, slot, slot, 1.0 / 3.0, 1.0 / 3.0]);
        }
    }
}

#[test]
fn of_equal_weights_a_first_choice_comes_before_a_second_of_an_earlier_row() {
    // Token 0 has expert 2, then expert 0; token 1 expert 0 with the same weight.
    let logits = [0.5, -9.0, 0.6, 0.5, 0.4, -9.0];
    let groups = TokenGroups { rows: 2, slots: 1, slots_per_token: f64::INFINITY, by_score: true };
    assert_eq!(slots_of(groups, 2, SIGMOID, &logits), [0.0, -1.0, 0.0, 0.0]);
}

/// Equal logits, as different orders of sums leave them.
#[test]
fn weights_that_differ_by_rounding_are_equal() {
    let groups = TokenGroups { rows: 3, slots: 1, slots_per_token: f64::INFINITY, by_score: true };
    let sum = [0.1, 0.2].iter().sum::<f64>();
    assert!(sum > 0.3);
    let slots = |first: f64| {
        let logits = [first, -9.0, -9.0, 0.3, -9.0, -9.0, sum, -9.0, -9.0];
        slots_of(groups, 1, SIGMOID, &logits)
    };
    assert_eq!(slots(0.3), [0.0, -1.0, -1.0]);
    assert_eq!(slots(0.298), [-1.0, 0.0, -1.0]);
    // A half is no end of equal weights.
    let halves = [f64::EPSILON, -9.0, -9.0, -f64::EPSILON, -9.0, -9.0, 2.0 * f64::EPSILON, -9.0, -9.0];
    assert_eq!(slots_of(groups, 1, SIGMOID, &halves), [0.0, -1.0, -1.0]);
}

#[test]
fn with_a_slot_for_every_token_nothing_is_dropped() {
    // All want the same experts.
    for (by_score, rows) in [(false, 40), (true, 8)] {
        let shape = RouterShape { rows: 40, experts: 8, per_token: 3 };
        let logits: Vec<f32> = (0..40 * 8).map(|i| (i % 8) as f32 + (i / 8) as f32 * 0.001).collect();
        let groups = TokenGroups { rows, slots: rows, slots_per_token: f64::INFINITY, by_score };
        let found = routes(&Pool::new(2), shape, RULES[1], groups, &logits);
        assert!(found.chunks(9).all(|row| row[3..6].iter().all(|slot| *slot >= 0.0)), "{found:?}");
    }
}

#[test]
fn tokens_without_numbers_choose_all_experts_equally_often() {
    let shape = RouterShape { rows: 600, experts: 4, per_token: 2 };
    let groups = TokenGroups { rows: 600, slots: 300, slots_per_token: f64::INFINITY, by_score: true };
    for rule in RULES {
        let found = on_any_threads(|pool| routes(pool, shape, rule, groups, &vec![f32::NAN; 600 * 4]));
        assert!(found.chunks(6).all(|row| row[2..4].iter().all(|slot| *slot >= 0.0)));
    }
    // Turns go on from piece to piece of the rows that threads share.
    let shape = RouterShape { rows: 40_000, experts: 3, per_token: 1 };
    let groups = TokenGroups { rows: 1, ..groups };
    let found = on_any_threads(|pool| routes(pool, shape, RULES[0], groups, &vec![f32::NAN; 3 * 40_000]));
    assert!(found.chunks(3).enumerate().all(|(row, route)| route[0] == (row % 3) as f32));
}

#[test]
fn no_expert_is_chosen_twice_where_probabilities_are_no_numbers() {
    let shape = RouterShape { rows: 1, experts: 4, per_token: 4 };
    let groups = TokenGroups { rows: 1, slots: 1, slots_per_token: f64::INFINITY, by_score: true };
    for logits in [[f32::NAN; 4], [f32::NEG_INFINITY; 4], [1.0, f32::NAN, 2.0, f32::INFINITY]] {
        for rule in RULES {
            let mut chosen = routes(&Pool::new(1), shape, rule, groups, &logits)[..4].to_vec();
            chosen.sort_by(f32::total_cmp);
            assert_eq!(chosen, [0.0, 1.0, 2.0, 3.0], "{logits:?} {rule:?}");
            let shape = RouterShape { per_token: 2, ..shape };
            let rule = RouterRule { groups: 2, chosen_groups: 1, ..rule };
            let chosen = &routes(&Pool::new(1), shape, rule, groups, &logits)[..2];
            assert!([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]].iter().any(|group| group == chosen), "{chosen:?}");
        }
    }
}
