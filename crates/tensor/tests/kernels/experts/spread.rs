//! Tokens spread over experts and combined again.

use super::{RULES, routes};
use crate::stored::{check, kernel};
use crate::support::{assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

/// Routes of some rows in groups of at most 8, some dropped, and the shape of what they spread.
fn spread_of<T: Element>(rows: usize, cols: usize) -> (SpreadShape, Vec<T>) {
    let (experts, per_token) = (5, 3);
    let group = (1..=8).rev().find(|group| rows.is_multiple_of(*group)).unwrap_or(1);
    let groups = RouterGroups { rows: group, slots: group.div_ceil(2), by_score: false };
    let shape = RouterShape { rows, experts, per_token };
    let routes = routes(&Pool::new(1), shape, RULES[1], groups, &random::<T>(9, rows * experts));
    (SpreadShape { rows, cols, experts, per_token, slots: rows / group * groups.slots, pieces: 1 }, routes)
}

/// By row and choice the weight and the place among all blocks, if it is not dropped.
fn places(shape: SpreadShape, routes: &[f64]) -> Vec<(usize, usize, f64, usize)> {
    let mut places = Vec::new();
    for (row, routes) in routes.chunks(3 * shape.per_token).enumerate() {
        for choice in 0..shape.per_token {
            let (expert, slot) = (routes[choice], routes[shape.per_token + choice]);
            if slot >= 0.0 {
                let place = expert as usize * shape.slots + slot as usize;
                places.push((row, choice, routes[2 * shape.per_token + choice], place));
            }
        }
    }
    places
}

fn equals_loops<T: Element>(rows: usize, cols: usize) {
    let (shape, routes) = spread_of::<T>(rows, cols);
    let (len, blocks) = (rows * cols, shape.experts * shape.slots * cols);
    let (x, dy) = (random::<T>(1, len), random::<T>(2, blocks));
    let filled = |len: usize| vec![T::from_f64(f64::NAN); len];
    let places = places(shape, &wide(&routes));
    assert!(rows < 16 || places.len() < rows * shape.per_token, "something is dropped");
    let mut expected = [vec![0.0; blocks], vec![0.0; len], vec![0.0; len], vec![0.0; blocks]];
    let mut dweights = vec![0.0; rows * shape.per_token];
    for (row, choice, weight, place) in places {
        for col in 0..cols {
            let (at, to) = (row * cols + col, place * cols + col);
            expected[0][to] = x[at].to_f64();
            expected[1][at] += dy[to].to_f64();
            expected[2][at] += weight * dy[to].to_f64();
            expected[3][to] = weight * x[at].to_f64();
            dweights[row * shape.per_token + choice] += x[at].to_f64() * dy[to].to_f64();
        }
    }
    let run = |len: usize, kernel: &dyn Fn(&Pool, &mut [T])| {
        on_any_threads(|pool| {
            let mut y = filled(len);
            kernel(pool, &mut y);
            y
        })
    };
    let what = format!("{shape:?}");
    assert_eq!(wide(&run(blocks, &|pool, y| spread(pool, shape, &x, &routes, y))), expected[0], "{what}");
    assert_close(&what, &run(len, &|pool, dx| spread_backward(pool, shape, &dy, &routes, dx)), &expected[1]);
    assert_close(&what, &run(len, &|pool, y| combine(pool, shape, &dy, &routes, y)), &expected[2]);
    let backward = |pool: &Pool, dx: &mut [T], dw: &mut [T]| combine_backward(pool, shape, &x, &dy, &routes, dx, dw);
    let dx = run(blocks, &|pool, dx| backward(pool, dx, &mut filled(dweights.len())));
    assert_close(&what, &dx, &expected[3]);
    assert_close(&what, &run(dweights.len(), &|pool, dw| backward(pool, &mut filled(blocks), dw)), &dweights);
}

#[test]
fn spreading_and_combining_equal_loops() {
    for (rows, cols) in [(0, 3), (1, 1), (3, 0), (8, 7), (16, 33), (64, 100), (129, 400), (1000, 65)] {
        equals_loops::<f32>(rows, cols);
        equals_loops::<f64>(rows, cols);
    }
}

#[test]
fn the_gradients_of_combining_equal_differences() {
    let (shape, routes) = spread_of::<f64>(16, 3);
    let (x, dy) = (random::<f64>(1, shape.experts * shape.slots * 3), random::<f64>(2, 48));
    let (mut dx, mut dweights) = (vec![0.0; x.len()], vec![0.0; 48]);
    combine_backward(&Pool::new(1), shape, &dy, &x, &routes, &mut dx, &mut dweights);
    let loss = |x: &[f64], routes: &[f64]| {
        let mut y = vec![0.0; 48];
        combine(&Pool::new(1), shape, x, routes, &mut y);
        dot(&y, &dy)
    };
    assert_gradient("x", &x, &dx, |x| loss(x, &routes));
    let weights: Vec<f64> = routes.chunks(9).flat_map(|row| row[6..].to_vec()).collect();
    assert_gradient("weights", &weights, &dweights, |weights| {
        let mut routes = routes.clone();
        routes.chunks_mut(9).zip(weights.chunks(3)).for_each(|(row, weights)| row[6..].copy_from_slice(weights));
        loss(&x, &routes)
    });
}

kernel! { Experts(pool, rows, cols) stored [x: rows * cols, y: 15 * rows * cols, dx: rows * cols, sum: rows * cols, back: 15 * rows * cols]
    real [dweights: 3 * rows] {
    let (shape, routes) = spread_of::<f32>(rows, cols);
    let blocks = shape.experts * shape.slots * cols;
    let (y, back) = (&mut y[..blocks], &mut back[..blocks]);
    spread_backward(pool, shape, y, &routes, dx);
    combine(pool, shape, y, &routes, sum);
    combine_backward(pool, shape, x, y, &routes, back, dweights);
    spread(pool, shape, x, &routes, y);
} }

#[test]
fn spreading_and_combining_are_rounded_once() {
    check(Experts);
}

#[test]
fn pieces_of_all_blocks_lie_together() {
    let (rows, cols) = (16, 3);
    let (whole, routes) = spread_of::<f64>(rows, cols);
    let (x, of_piece) = (random::<f64>(1, rows * cols), whole.slots / 2);
    let (cut, len) = (SpreadShape { pieces: 2, ..whole }, whole.experts * whole.slots * cols);
    let [mut one, mut two] = [(); 2].map(|()| vec![f64::NAN; len]);
    spread(&Pool::new(1), whole, &x, &routes, &mut one);
    spread(&Pool::new(1), cut, &x, &routes, &mut two);
    let row = |rows: &[f64], at: usize| rows[at * cols..(at + 1) * cols].to_vec();
    for expert in 0..whole.experts {
        for slot in 0..whole.slots {
            let at = (slot / of_piece * whole.experts + expert) * of_piece + slot % of_piece;
            assert_eq!(row(&two, at), row(&one, expert * whole.slots + slot), "slot {slot} of expert {expert}");
        }
    }
}
