//! Counts, losses and gradients of a router.

use super::{RULES, routes, routes_of};
use crate::support::{assert_gradient, dot, on_any_threads, random};
use quadrille_tensor::*;

const SHAPE: RouterShape = RouterShape { rows: 24, experts: 5, per_token: 2 };
const GROUPS: TokenGroups = TokenGroups { rows: 8, slots: 3, slots_per_token: 0.375, by_score: false };
const FACTORS: RouterLosses = RouterLosses { balance: 0.3, z: 0.02 };

/// Rows by turns in two scopes, as sequences that are cut among ranks may be.
fn scope(row: usize) -> usize {
    row % 2
}

fn logits() -> Vec<f64> {
    random::<f64>(5, SHAPE.rows * SHAPE.experts).into_iter().map(|x| 2.0 * x).collect()
}

fn counts(routes: &[f64]) -> Vec<f64> {
    let mut counts = vec![f64::NAN; 2 * SHAPE.experts];
    count_choices(SHAPE, routes, scope, &mut counts, false);
    counts
}

#[test]
fn every_choice_is_counted_also_those_that_are_dropped() {
    let routes = routes(&Pool::new(1), SHAPE, RULES[0], GROUPS, &logits());
    let mut expected = vec![0.0; 2 * SHAPE.experts];
    for (row, routes) in routes.chunks(6).enumerate() {
        for expert in &routes[..2] {
            expected[row % 2 * SHAPE.experts + *expert as usize] += 1.0;
        }
    }
    assert!(routes.chunks(6).any(|row| row[2..4].contains(&-1.0)), "something is dropped");
    assert_eq!(counts(&routes), expected);
    assert_eq!(expected.iter().sum::<f64>(), (SHAPE.rows * SHAPE.per_token) as f64);
}

#[test]
fn counts_of_passes_add_up() {
    let routes = routes(&Pool::new(1), SHAPE, RULES[0], GROUPS, &logits());
    let mut loads = vec![f64::NAN; SHAPE.experts];
    count_choices(SHAPE, &routes, |_| 0, &mut loads, false);
    let once = loads.clone();
    count_choices(SHAPE, &routes, |_| 0, &mut loads, true);
    assert_eq!(loads, once.iter().map(|load| 2.0 * load).collect::<Vec<_>>());
}

#[test]
fn biases_rise_below_the_mean_load_and_fall_above_it() {
    fn check<T: Element>() {
        let [rate, loads] = [0.25, 1.0].map(T::from_f64);
        let loads = [0.0, 5.0, 4.0, 3.0, 8.0].map(|load| T::from_f64(load) * loads);
        let mut bias = [T::ONE; 5];
        // 20 choices of 5 experts.
        follow_loads(0.25, 20, 5, &loads, &mut bias);
        assert_eq!(bias, [T::ONE + rate, T::ONE - rate, T::ONE, T::ONE + rate, T::ONE - rate], "{}", T::NAME);
        // The mean of 3 choices of 2 is no whole number.
        let mut bias = [T::ZERO; 2];
        follow_loads(0.25, 3, 2, &loads[2..4], &mut bias);
        assert_eq!(bias, [-rate; 2]);
        follow_loads(0.25, 3, 2, &[T::ONE, T::ONE + T::ONE], &mut bias);
        assert_eq!(bias, [T::ZERO, -rate - rate]);
    }
    check::<f32>();
    check::<f64>();
    // More than a type has are above any mean that it has.
    let mut bias = [0.0_f32; 2];
    follow_loads(0.5, 1 << 25, 4, &[(1 << 24) as f32, (1 << 23) as f32], &mut bias);
    assert_eq!(bias, [-0.5, 0.0]);
}

/// Tokens of each scope of [`SHAPE`].
const SCOPE_TOKENS: usize = 12;

/// Both losses by loops.
fn plain(rule: RouterRule, losses: RouterLosses, logits: &[f64], counts: &[f64]) -> (f64, f64) {
    let mut balance = 0.0;
    let mut z = 0.0;
    for (row, logits) in logits.chunks(SHAPE.experts).enumerate() {
        let p = |x: &f64| if rule.sigmoid { 1.0 / (1.0 + (-x).exp()) } else { x.exp() };
        let total: f64 = logits.iter().map(p).sum();
        for (expert, x) in logits.iter().enumerate() {
            let count = counts[scope(row) * SHAPE.experts + expert];
            let f = SHAPE.experts as f64 * count / (SHAPE.per_token * SCOPE_TOKENS) as f64;
            balance += losses.balance * f * p(x) / total;
        }
        z += losses.z * logits.iter().map(|x| x.exp()).sum::<f64>().ln().powi(2);
    }
    (balance, z)
}

#[test]
fn losses_equal_loops_and_are_zero_where_their_factor_is() {
    for rule in RULES {
        let routes = routes(&Pool::new(1), SHAPE, rule, GROUPS, &logits());
        let counts = counts(&routes);
        for losses in [FACTORS, RouterLosses { z: 0.0, ..FACTORS }, RouterLosses { balance: 0.0, ..FACTORS }] {
            let found = router_losses(SHAPE, rule, losses, &logits(), &routes, &counts, scope);
            let expected = plain(rule, losses, &logits(), &counts);
            assert!((found.0 - expected.0).abs() < 1e-12, "{found:?} {expected:?}");
            assert!((found.1 - expected.1).abs() < 1e-12, "{found:?} {expected:?}");
        }
    }
}

#[test]
fn equal_counts_of_equal_probabilities_have_the_balance_loss_alpha_of_each_row() {
    let rule = RULES[0];
    let routes = routes(&Pool::new(1), SHAPE, rule, GROUPS, &logits());
    let counts = vec![24.0 * 2.0 / 5.0; 5];
    let losses = RouterLosses { balance: 0.1, z: 0.0 };
    let (balance, z) = router_losses(SHAPE, rule, losses, &logits(), &routes, &counts, |_| 0);
    assert!((balance - 24.0 * 0.1).abs() < 1e-12 && z == 0.0);
}

/// The gradient's kernel, with the gradient of dropped choices' weights 0.
fn gradient<T: Element>(rule: RouterRule, losses: RouterLosses, logits: &[f64]) -> (Vec<T>, Vec<f64>, Vec<f64>) {
    gradient_of(rule, losses, logits, &routes(&Pool::new(1), SHAPE, rule, GROUPS, logits))
}

/// [`gradient`] of given routes.
fn gradient_of<T: Element>(
    rule: RouterRule,
    losses: RouterLosses,
    logits: &[f64],
    routes: &[f64],
) -> (Vec<T>, Vec<f64>, Vec<f64>) {
    let counts = counts(routes);
    let mut dweights = random::<f64>(8, SHAPE.rows * SHAPE.per_token);
    for (dw, row) in dweights.chunks_mut(2).zip(routes.chunks(6)) {
        dw.iter_mut().zip(&row[2..4]).filter(|(_, slot)| **slot < 0.0).for_each(|(dw, _)| *dw = 0.0);
    }
    let narrow = |x: &[f64]| x.iter().map(|x| T::from_f64(*x)).collect::<Vec<_>>();
    let routes = narrow(routes);
    let narrow_counts = narrow(&counts);
    let narrow_dweights = narrow(&dweights);
    let found = on_any_threads(|pool| {
        let mut x = narrow(logits);
        route_backward(pool, SHAPE, rule, losses, FACTOR, &mut x, &routes, &narrow_counts, &narrow_dweights, scope);
        x
    });
    (found, dweights, counts)
}

const FACTOR: f64 = 0.25;

#[test]
fn gradients_of_weights_and_losses_equal_differences() {
    for rule in RULES {
        for (balance, z) in [(0.0, 0.0), (0.3, 0.0), (0.0, 0.02), (0.3, 0.02)] {
            let losses = RouterLosses { balance, z };
            let (found, dweights, counts) = gradient::<f64>(rule, losses, &logits());
            assert_gradient(&format!("{rule:?} {losses:?}"), &logits(), &found, |logits| {
                let routes = routes(&Pool::new(1), SHAPE, rule, GROUPS, logits);
                let weights: Vec<f64> = routes.chunks(6).flat_map(|row| row[4..].to_vec()).collect();
                let (balance, z) = plain(rule, losses, logits, &counts);
                dot(&weights, &dweights) + FACTOR * (balance + z)
            });
            let (single, ..) = gradient::<f32>(rule, losses, &logits());
            let near = |(x, e): (&f32, &f64)| (f64::from(*x) - e).abs() < 1e-5;
            assert!(single.iter().zip(&found).all(near), "{rule:?} {losses:?}");
        }
    }
}

#[test]
fn threads_change_no_bit_of_many_rows() {
    let shape = RouterShape { rows: 3000, experts: 60, per_token: 4 };
    let groups = TokenGroups { rows: 500, slots: 30, slots_per_token: f64::INFINITY, by_score: true };
    let logits = random::<f32>(1, shape.rows * shape.experts);
    let routes = on_any_threads(|pool| routes(pool, shape, RULES[3], groups, &logits));
    let mut counts = vec![0.0; 3 * shape.experts];
    count_choices(shape, &routes, |row| row / 1000, &mut counts, false);
    let dweights = random::<f32>(2, shape.rows * shape.per_token);
    let losses = RouterLosses { balance: 0.01, z: 0.001 };
    on_any_threads(|pool| {
        let mut x = logits.clone();
        let scope = |row| row / 1000;
        route_backward(pool, shape, RULES[3], losses, 1.0, &mut x, &routes, &counts, &dweights, scope);
        x
    });
}

/// Rows by turns of tokens and padding: the results of the tokens equal, bit by bit, those of the tokens alone.
#[test]
fn padding_has_no_part_in_choices_losses_and_gradients() {
    for (rule, by_score) in RULES.into_iter().zip([false, true, false, true]) {
        let alone = logits();
        let padded = alone.chunks(SHAPE.experts).flat_map(|row| [row, &[9.0, -9.0, 9.0, f64::NAN, 9.0]].concat());
        let padded: Vec<f64> = padded.collect();
        let shape = RouterShape { rows: 2 * SHAPE.rows, ..SHAPE };
        let present: Vec<u32> = (0..shape.rows).map(|row| u32::from(row % 2 == 0)).collect();
        let groups = TokenGroups { by_score, ..GROUPS };
        let of_alone = routes(&Pool::new(1), SHAPE, rule, groups, &alone);
        // As many slots as twice the rows would have: those of padding are left over.
        let groups = TokenGroups { rows: 2 * groups.rows, slots: 2 * groups.slots, ..groups };
        let found = on_any_threads(|pool| routes_of(pool, shape, rule, groups, &present, &padded));
        let slots = GROUPS.slots as f64;
        let slot = |slot: f64| if slot < 0.0 { slot } else { slot + (slot / slots).floor() * slots };
        let expected: Vec<f64> = of_alone
            .chunks(6)
            .flat_map(|row| {
                [&row[..2], &[slot(row[2]), slot(row[3])], &row[4..], &[-1.0, -1.0, -1.0, -1.0, 0.0, 0.0]].concat()
            })
            .collect();
        assert_eq!(found, expected);
        assert_eq!(dropped_choices(shape, &found), dropped_choices(SHAPE, &of_alone));

        let mut counted = vec![f64::NAN; 2 * SHAPE.experts];
        count_choices(shape, &found, |row| scope(row / 2), &mut counted, false);
        assert_eq!(counted, counts(&of_alone));
        let losses = router_losses(shape, rule, FACTORS, &padded, &found, &counted, |row| scope(row / 2));
        assert_eq!(losses, router_losses(SHAPE, rule, FACTORS, &alone, &of_alone, &counted, scope));

        let (expected, dweights, _) = gradient_of(rule, FACTORS, &alone, &of_alone);
        let dweights: Vec<f64> = dweights.chunks(2).flat_map(|row| [row, &[0.0, 0.0]].concat()).collect();
        let mut d = padded.clone();
        let pool = Pool::new(2);
        route_backward(&pool, shape, rule, FACTORS, FACTOR, &mut d, &found, &counted, &dweights, |row| scope(row / 2));
        let expected: Vec<f64> = expected.chunks(5).flat_map(|row| [row, &[0.0; 5]].concat()).collect();
        assert_eq!(d, expected);
    }
}
