//! Routers, and rows on their way to experts and back.

use std::collections::BTreeSet;

use quadrille_cuda::update_words;
use quadrille_tensor::{
    Element, RouterLosses, RouterRule, RouterShape, Slots, SpreadShape, Stored, TokenGroups, combine, combine_backward,
    count_choices, dropped_choices, follow_loads, route, route_backward, router_forward, router_input_gradient,
    router_losses, router_weight_gradient, spread, spread_backward,
};

use crate::support::{Value, alike, equal, in_each_format, in_every_seed, near, near_to, numbers, pool};

const SHAPE: RouterShape = RouterShape { rows: 48, experts: 35, per_token: 3 };
const COLS: usize = 21;
const SCOPES: usize = 2;

fn scope(row: usize) -> usize {
    row / 24
}

fn scopes() -> Vec<u32> {
    (0..SHAPE.rows).map(|row| scope(row) as u32).collect()
}

/// One row in five is padding.
fn present() -> Vec<u32> {
    (0..SHAPE.rows).map(|row| u32::from(row % 5 != 3)).collect()
}

fn rules() -> [RouterRule; 4] {
    let of = |sigmoid, normalize| RouterRule { sigmoid, normalize, scale: 2.5, groups: 1, chosen_groups: 1 };
    [of(false, false), of(false, true), of(true, false), of(true, true)]
}

fn products<S: Value>() {
    let RouterShape { rows, experts, .. } = SHAPE;
    let x = numbers::<S>(1, rows * COLS);
    let [weight, d, before] =
        [2, 3, 4].map(|name| numbers::<S::Wide>(name, [COLS, rows, COLS][name as usize - 2] * experts));
    let mut logits = d.clone();
    let mut dx = x.clone();
    let mut dweight = before.clone();
    router_forward(&pool(), SHAPE, COLS, &x, &weight, &mut logits);
    router_input_gradient(&pool(), SHAPE, COLS, &d, &weight, &mut dx);
    router_weight_gradient(&pool(), SHAPE, COLS, &x, &d, &mut dweight, true);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let x = device.up(&x);
        let weight = device.up(&weight);
        let d = device.up(&d);
        let logits = device.poison::<S::Wide>(rows * experts);
        let dx = device.poison::<S>(rows * COLS);
        let dweight = device.up(&before);
        queue.router_forward(SHAPE, COLS, x, weight, logits).unwrap();
        queue.router_input_gradient(SHAPE, COLS, d, weight, dx).unwrap();
        queue.router_weight_gradient(SHAPE, COLS, x, d, dweight, true).unwrap();
        (device.down::<S>(dx), [logits, dweight].map(|x| device.down::<S::Wide>(x)))
    });
    near(&got.0, &dx);
    [logits, dweight].iter().zip(&got.1).for_each(|(expected, got)| near(got, expected));
}

/// Routes of the rows, as the processor chooses them.
fn routes<T: Element>(rule: RouterRule, groups: TokenGroups, logits: &[T], bias: Option<&[T]>) -> Vec<T> {
    let mut routes = vec![T::ZERO; SHAPE.rows * 3 * SHAPE.per_token];
    route(&pool(), SHAPE, rule, groups, &present(), logits, bias, &mut routes);
    routes
}

const GROUPS: TokenGroups = TokenGroups { rows: 16, slots: 2, slots_per_token: 0.07, by_score: false };

/// Asserts that devices give the processor's routes; returns them.
fn check_routes<S: Value>(
    rule: RouterRule,
    groups: TokenGroups,
    logits: &[S::Wide],
    bias: Option<&[S::Wide]>,
) -> Vec<S::Wide> {
    let expected = routes(rule, groups, logits, bias);
    let got = in_every_seed(|device| {
        let to = device.poison::<S::Wide>(expected.len());
        let bias = bias.map(|bias| device.up(bias));
        let [present, logits] = [device.up(&present()), device.up(logits)];
        device.queue().route(SHAPE, rule, groups, present, logits, bias, to).unwrap();
        // What is no number has no one sign.
        device.down::<S::Wide>(to).iter().map(|x| (!x.to_f64().is_nan()).then_some(*x)).collect::<Vec<_>>()
    });
    let there =
        |numbers: &[Option<S::Wide>]| -> Vec<S::Wide> { numbers.iter().map(|x| x.unwrap_or(S::Wide::ZERO)).collect() };
    let numbers: Vec<Option<S::Wide>> = expected.iter().map(|x| (!x.to_f64().is_nan()).then_some(*x)).collect();
    let which = |numbers: &[Option<S::Wide>]| numbers.iter().map(Option::is_some).collect::<Vec<_>>();
    assert_eq!(which(&got), which(&numbers), "{rule:?} {groups:?}");
    alike::<S::Wide>(&there(&got), &there(&numbers));
    expected
}

fn choices<S: Value>() {
    let logits = numbers::<S::Wide>(1, SHAPE.rows * SHAPE.experts);
    let bias = numbers::<S::Wide>(2, SHAPE.experts);
    for (i, rule) in rules().into_iter().enumerate() {
        let groups = TokenGroups { by_score: i % 2 == 1, ..GROUPS };
        let expected = check_routes::<S>(rule, groups, &logits, (i > 1).then_some(&bias[..]));
        assert!(dropped_choices(SHAPE, &expected) > 0, "no choice is dropped");
    }
}

/// Groups of one expert, of a token's share of them and larger ones, and more groups than a warp has lanes.
fn groups_of_experts<S: Value>() {
    let logits = numbers::<S::Wide>(1, SHAPE.rows * SHAPE.experts);
    let bias = numbers::<S::Wide>(2, SHAPE.experts);
    for (i, rule) in rules().into_iter().enumerate() {
        for (groups, chosen_groups) in [(5, 1), (7, 3), (35, 3)] {
            let rule = RouterRule { groups, chosen_groups, ..rule };
            let bias = (i % 2 == 0).then_some(&bias[..]);
            let found = check_routes::<S>(rule, GROUPS, &logits, bias);
            let of = |expert: &S::Wide| expert.to_f64() as usize * groups / SHAPE.experts;
            for row in found.chunks(3 * SHAPE.per_token) {
                let chosen: BTreeSet<usize> = row[..SHAPE.per_token].iter().map(of).collect();
                assert!(chosen.len() <= chosen_groups, "{rule:?}: {row:?}");
            }
        }
    }
}

/// Equal logits, of which the first experts are chosen, and rows of what is no number, which take experts in turn; with and
/// without groups of them.
fn ties_and_no_numbers<S: Value>() {
    let mut logits = vec![S::Wide::ONE; SHAPE.rows * SHAPE.experts];
    let none = S::Wide::from_f64(f64::NAN);
    logits[..SHAPE.experts].fill(none);
    logits[5 * SHAPE.experts + 33] = none;
    logits[7 * SHAPE.experts] = S::Wide::from_f64(f64::INFINITY);
    logits[9 * SHAPE.experts..10 * SHAPE.experts].fill(S::Wide::NEG_INFINITY);
    let bias = numbers::<S::Wide>(2, SHAPE.experts);
    for rule in rules() {
        check_routes::<S>(rule, GROUPS, &logits, None);
        check_routes::<S>(rule, GROUPS, &logits, Some(&bias));
        check_routes::<S>(RouterRule { groups: 7, chosen_groups: 3, ..rule }, GROUPS, &logits, None);
    }
}

/// Weights that differ by less than they are compared with: the first rows take slots, though the last have the largest.
fn nearly_equal_weights<S: Value>() {
    let of = |i: usize| S::Wide::from_f64(1.0 + (i / SHAPE.experts) as f64 * 1e-6);
    let logits: Vec<S::Wide> = (0..SHAPE.rows * SHAPE.experts).map(of).collect();
    let found = check_routes::<S>(rules()[2], TokenGroups { by_score: true, ..GROUPS }, &logits, None);
    assert!(found[6] < found[9 * 15 + 6] && found[3] == S::Wide::ZERO, "{:?}", &found[..9]);
}

fn counts_of<T: Element>(routes: &[T]) -> Vec<T> {
    let mut counts = vec![T::ZERO; SCOPES * SHAPE.experts];
    count_choices(SHAPE, routes, scope, &mut counts, false);
    counts
}

fn losses<S: Value>() {
    let logits = numbers::<S::Wide>(1, SHAPE.rows * SHAPE.experts);
    for (rule, [balance, z]) in rules().into_iter().zip([[0.1, 0.2], [0.0, 0.2], [0.1, 0.0], [0.1, 0.2]]) {
        let routes = routes(rule, GROUPS, &logits, None);
        let losses = RouterLosses { balance, z };
        let counts = counts_of(&routes);
        let expected_counts = counts.clone();
        let expected = router_losses(SHAPE, rule, losses, &logits, &routes, &counts, scope);
        let dropped = dropped_choices(SHAPE, &routes) as f64;
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let logits = device.up(&logits);
            let routes = device.up(&routes);
            let counts = device.poison::<S::Wide>(counts.len());
            let scopes = device.up(&scopes());
            let totals = [0.0, 1.0, 2.0].map(|total| device.up(&[total]));
            let loads = device.up(&[S::Wide::ONE; SHAPE.experts]);
            queue.count_choices(SHAPE, routes, scopes, counts, false).unwrap();
            queue.add_loads(SHAPE, routes, loads).unwrap();
            let twice = device.up(&expected_counts);
            queue.count_choices(SHAPE, routes, scopes, twice, true).unwrap();
            // Where loads are not balanced there need be no counts.
            let of_scopes = (balance != 0.0).then_some((counts, scopes));
            queue.router_losses(SHAPE, rule, losses, logits, routes, of_scopes, totals).unwrap();
            let [counts, loads, twice] = [counts, loads, twice].map(|counts| device.down::<S::Wide>(counts));
            (counts, totals.map(|total| device.down::<f64>(total)[0]), loads, twice)
        });
        equal(&got.0, &counts);
        equal(&got.3, &counts.iter().map(|count| *count + *count).collect::<Vec<_>>());
        let loads: Vec<S::Wide> =
            (0..SHAPE.experts).map(|i| counts[i] + counts[SHAPE.experts + i] + S::Wide::ONE).collect();
        equal(&got.2, &loads);
        near_to(&got.1, &[expected.0, expected.1 + 1.0, dropped + 2.0], S::Wide::SUMS);
    }
}

fn gradients<S: Value>() {
    let logits = numbers::<S::Wide>(1, SHAPE.rows * SHAPE.experts);
    let dweights = numbers::<S::Wide>(2, SHAPE.rows * SHAPE.per_token);
    for (rule, [balance, z]) in rules().into_iter().zip([[0.1, 0.2], [0.0, 0.2], [0.1, 0.0], [0.1, 0.2]]) {
        let routes = routes(rule, GROUPS, &logits, None);
        let losses = RouterLosses { balance, z };
        let counts = counts_of(&routes);
        let mut d = logits.clone();
        route_backward(&pool(), SHAPE, rule, losses, 0.5, &mut d, &routes, &counts, &dweights, scope);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let logits = device.up(&logits);
            let routes = device.up(&routes);
            let counts = Some((device.up(&counts), device.up(&scopes())));
            queue.route_backward(SHAPE, rule, losses, 0.5, logits, routes, counts, device.up(&dweights)).unwrap();
            device.down::<S::Wide>(logits)
        });
        near(&got, &d);
    }
}

fn loads<S: Value>() {
    let loads: Vec<S::Wide> = (0..SHAPE.experts).map(|expert| S::Wide::from_f64((expert % 5) as f64)).collect();
    let bias = numbers::<S::Wide>(1, SHAPE.experts);
    let choices = 2 * SHAPE.experts;
    let mut moved = bias.clone();
    follow_loads(0.01, choices, SHAPE.experts, &loads, &mut moved);
    for applied in [true, false] {
        let got = in_every_seed(|device| {
            let update = device.up(&update_words(applied, 1.0));
            let to = device.up(&bias);
            device.queue().follow_loads(update, 0.01, choices, SHAPE.experts, device.up(&loads), to).unwrap();
            device.down::<S::Wide>(to)
        });
        equal(&got, if applied { &moved } else { &bias });
    }
}

/// Blocks in pieces, and queues, which have as many rows as tokens have them.
fn slots<T: Element>(routes: &[T]) -> [(Slots<'static>, Option<Vec<u32>>, usize); 2] {
    let of_expert = |expert: usize| {
        let chosen = routes.chunks(9).flat_map(|row| (0..3).filter(|i| row[3 + i].to_f64() >= 0.0).map(|i| row[i]));
        chosen.filter(|e| e.to_f64() as usize == expert).count()
    };
    let mut starts = vec![0];
    (0..SHAPE.experts).for_each(|expert| starts.push(starts[expert] + of_expert(expert)));
    let places = starts[SHAPE.experts];
    let on_device = starts.iter().map(|start| *start as u32).collect();
    let queues = (Slots::Queues(Vec::leak(starts)), Some(on_device), places);
    [(Slots::Blocks { slots: 6, pieces: 2 }, None, SHAPE.experts * 6), queues]
}

fn rows_of_experts<S: Value>() {
    let logits = numbers::<S::Wide>(1, SHAPE.rows * SHAPE.experts);
    // Queues hold every choice: one group has as many slots as there are tokens.
    for queues in [false, true] {
        let groups = if queues {
            TokenGroups { rows: 48, slots: 48, slots_per_token: f64::INFINITY, by_score: false }
        } else {
            GROUPS
        };
        let routes = routes(rules()[1], groups, &logits, None);
        let (slots, starts, places) = slots(&routes)[usize::from(queues)].clone();
        let RouterShape { rows, experts, per_token } = SHAPE;
        let shape = SpreadShape { rows, cols: COLS, experts, per_token, slots };
        let [tokens, of_experts] = [(1, rows), (2, places)].map(|(name, rows)| numbers::<S>(name, rows * COLS));
        let mut y = of_experts.clone();
        let mut dx = tokens.clone();
        let mut sum = tokens.clone();
        let mut d = of_experts.clone();
        let mut dweights = vec![S::Wide::ZERO; rows * per_token];
        spread(&pool(), shape, &tokens, &routes, &mut y);
        spread_backward(&pool(), shape, &of_experts, &routes, &mut dx);
        combine(&pool(), shape, &of_experts, &routes, &mut sum);
        combine_backward(&pool(), shape, &tokens, &of_experts, &routes, &mut d, &mut dweights);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let routes = device.up(&routes);
            let starts = starts.as_ref().map(|starts| device.up(starts));
            let tokens = device.up(&tokens);
            let of_experts = device.up(&of_experts);
            let [y, d] = [(); 2].map(|()| device.poison::<S>(places * COLS));
            let [dx, sum] = [(); 2].map(|()| device.poison::<S>(rows * COLS));
            let dweights = device.poison::<S::Wide>(rows * per_token);
            queue.spread(shape, starts, tokens, routes, y).unwrap();
            queue.spread_backward(shape, starts, of_experts, routes, dx).unwrap();
            queue.combine(shape, starts, of_experts, routes, sum).unwrap();
            queue.combine_backward(shape, starts, tokens, of_experts, routes, d, dweights).unwrap();
            ([y, dx, sum, d].map(|x| device.down::<S>(x)), device.down::<S::Wide>(dweights))
        });
        [&y, &dx, &sum, &d].iter().zip(&got.0).for_each(|(expected, got)| equal(got, expected));
        equal(&got.1, &dweights);
    }
}

in_each_format!(products choices groups_of_experts ties_and_no_numbers nearly_equal_weights losses gradients loads rows_of_experts);
