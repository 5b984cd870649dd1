//! Kernels of a mixture of experts.

mod gradient;
mod grouped;
mod route;
mod router_product;
mod spread;

use quadrille_tensor::*;

/// How weights are made: all combinations.
const RULES: [RouterRule; 4] = [
    RouterRule { sigmoid: false, normalize: false, scale: 1.0 },
    RouterRule { sigmoid: false, normalize: true, scale: 1.5 },
    RouterRule { sigmoid: true, normalize: false, scale: 0.7 },
    RouterRule { sigmoid: true, normalize: true, scale: 2.5 },
];

fn routes<T: Element>(pool: &Pool, shape: RouterShape, rule: RouterRule, groups: RouterGroups, logits: &[T]) -> Vec<T> {
    let mut routes = vec![T::from_f64(f64::NAN); shape.rows * 3 * shape.per_token];
    route(pool, shape, rule, groups, logits, None, &mut routes);
    routes
}

fn biased_routes<T: Element>(
    pool: &Pool,
    shape: RouterShape,
    rule: RouterRule,
    groups: RouterGroups,
    [logits, bias]: [&[T]; 2],
) -> Vec<T> {
    let mut routes = vec![T::from_f64(f64::NAN); shape.rows * 3 * shape.per_token];
    route(pool, shape, rule, groups, logits, Some(bias), &mut routes);
    routes
}
