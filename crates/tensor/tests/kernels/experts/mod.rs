//! Kernels of a mixture of experts.

mod gradient;
mod grouped;
mod route;
mod router_product;
mod spread;

use quadrille_tensor::*;

/// How weights are made: all combinations.
const RULES: [RouterRule; 4] =
    [rule(false, false, 1.0), rule(false, true, 1.5), rule(true, false, 0.7), rule(true, true, 2.5)];

/// Of all experts.
const fn rule(sigmoid: bool, normalize: bool, scale: f64) -> RouterRule {
    RouterRule { sigmoid, normalize, scale, groups: 1, chosen_groups: 1 }
}

fn routes<T: Element>(pool: &Pool, shape: RouterShape, rule: RouterRule, groups: TokenGroups, logits: &[T]) -> Vec<T> {
    routes_of(pool, shape, rule, groups, &vec![1; shape.rows], logits)
}

/// Routes of the rows that `present` marks, and of padding.
fn routes_of<T: Element>(
    pool: &Pool,
    shape: RouterShape,
    rule: RouterRule,
    groups: TokenGroups,
    present: &[u32],
    logits: &[T],
) -> Vec<T> {
    let mut routes = vec![T::from_f64(f64::NAN); shape.rows * 3 * shape.per_token];
    route(pool, shape, rule, groups, present, logits, None, &mut routes);
    routes
}

fn biased_routes<T: Element>(
    pool: &Pool,
    shape: RouterShape,
    rule: RouterRule,
    groups: TokenGroups,
    [logits, bias]: [&[T]; 2],
) -> Vec<T> {
    let mut routes = vec![T::from_f64(f64::NAN); shape.rows * 3 * shape.per_token];
    route(pool, shape, rule, groups, &vec![1; shape.rows], logits, Some(bias), &mut routes);
    routes
}
