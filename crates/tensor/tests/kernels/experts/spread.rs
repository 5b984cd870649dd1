//! Tokens spread over experts and combined again.

use super::{RULES, routes};
use crate::stored::{check, kernel};
use crate::support::{assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

/// Rows and columns that are spread.
const SIZES: [(usize, usize); 8] = [(0, 3), (1, 1), (3, 0), (8, 7), (16, 33), (64, 100), (129, 400), (1000, 65)];

/// Routes of some rows in groups of at most 8, some dropped, and the shape of what they spread.
fn spread_of<T: Element>(rows: usize, cols: usize) -> (SpreadShape<'static>, Vec<T>) {
    let experts = 5;
    let per_token = 3;
    let group = (1..=8).rev().find(|group| rows.is_multiple_of(*group)).unwrap_or(1);
    let groups = TokenGroups { rows: group, slots: group.div_ceil(2), slots_per_token: f64::INFINITY, by_score: false };
    let shape = RouterShape { rows, experts, per_token };
    let routes = routes(&Pool::new(1), shape, RULES[1], groups, &random::<T>(9, rows * experts));
    let slots = Slots::Blocks { slots: rows / group * groups.slots, pieces: 1 };
    (SpreadShape { rows, cols, experts, per_token, slots }, routes)
}

/// Rows of an expert.
fn rows_of(shape: SpreadShape<'_>, expert: usize) -> usize {
    match shape.slots {
        Slots::Blocks { slots, .. } => slots,
        Slots::Queues(starts) => starts[expert + 1] - starts[expert],
    }
}

/// The row of an expert's first slot, of blocks that are whole.
fn start_of(shape: SpreadShape<'_>, expert: usize) -> usize {
    (0..expert).map(|expert| rows_of(shape, expert)).sum()
}

/// By row and choice the weight and the place among all blocks, if it is not dropped.
fn places(shape: SpreadShape<'_>, routes: &[f64]) -> Vec<(usize, usize, f64, usize)> {
    let mut places = Vec::new();
    for (row, routes) in routes.chunks(3 * shape.per_token).enumerate() {
        for choice in 0..shape.per_token {
            let expert = routes[choice];
            let slot = routes[shape.per_token + choice];
            if slot >= 0.0 {
                let place = start_of(shape, expert as usize) + slot as usize;
                places.push((row, choice, routes[2 * shape.per_token + choice], place));
            }
        }
    }
    places
}

fn equals_loops<T: Element>(shape: SpreadShape<'_>, routes: &[T]) {
    let SpreadShape { rows, cols, .. } = shape;
    let len = rows * cols;
    let blocks = start_of(shape, shape.experts) * cols;
    let x = random::<T>(1, len);
    let dy = random::<T>(2, blocks);
    let filled = |len: usize| vec![T::from_f64(f64::NAN); len];
    let places = places(shape, &wide(routes));
    let mut expected = [vec![0.0; blocks], vec![0.0; len], vec![0.0; len], vec![0.0; blocks]];
    let mut dweights = vec![0.0; rows * shape.per_token];
    for (row, choice, weight, place) in places {
        for col in 0..cols {
            let at = row * cols + col;
            let to = place * cols + col;
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
    assert_eq!(wide(&run(blocks, &|pool, y| spread(pool, shape, &x, routes, y))), expected[0], "{what}");
    assert_close(&what, &run(len, &|pool, dx| spread_backward(pool, shape, &dy, routes, dx)), &expected[1]);
    assert_close(&what, &run(len, &|pool, y| combine(pool, shape, &dy, routes, y)), &expected[2]);
    let backward = |pool: &Pool, dx: &mut [T], dw: &mut [T]| combine_backward(pool, shape, &x, &dy, routes, dx, dw);
    let dx = run(blocks, &|pool, dx| backward(pool, dx, &mut filled(dweights.len())));
    assert_close(&what, &dx, &expected[3]);
    assert_close(&what, &run(dweights.len(), &|pool, dw| backward(pool, &mut filled(blocks), dw)), &dweights);
}

#[test]
fn spreading_and_combining_equal_loops() {
    fn check<T: Element>(rows: usize, cols: usize) {
        let (shape, routes) = spread_of::<T>(rows, cols);
        let placed = places(shape, &wide(&routes)).len();
        assert!(rows < 16 || placed < rows * shape.per_token, "something is dropped");
        equals_loops(shape, &routes);
    }
    for (rows, cols) in SIZES {
        check::<f32>(rows, cols);
        check::<f64>(rows, cols);
    }
}

/// Routes of some rows, none of which chooses the second or the last expert, to at most `most` slots of each.
fn queued<T: Element>(rows: usize, most: usize) -> (RouterShape, Vec<T>) {
    let shape = RouterShape { rows, experts: 5, per_token: 2 };
    let groups = TokenGroups { rows: rows.max(1), slots: most, slots_per_token: f64::INFINITY, by_score: true };
    let mut logits = random::<T>(9, rows * shape.experts);
    logits.chunks_mut(shape.experts).for_each(|row| (row[1], row[4]) = (T::from_f64(-9.0), T::from_f64(-9.0)));
    (shape, routes(&Pool::new(1), shape, RULES[1], groups, &logits))
}

#[test]
fn spreading_to_queues_equals_loops() {
    fn check<T: Element>(rows: usize, cols: usize, most: usize) {
        let (RouterShape { experts, per_token, .. }, routes) = queued::<T>(rows, most);
        let mut lengths = vec![0; experts];
        for row in routes.chunks(3 * per_token) {
            let kept = (0..per_token).filter(|choice| row[per_token + choice] >= T::ZERO);
            kept.for_each(|choice| lengths[row[choice].to_f64() as usize] += 1);
        }
        let mut starts = vec![0];
        lengths.iter().for_each(|len| starts.push(starts[starts.len() - 1] + len));
        assert_eq!((starts[2] - starts[1], starts[5] - starts[4]), (0, 0), "two experts have empty queues");
        assert!(most < rows || starts[experts] == rows * per_token, "nothing is dropped");
        equals_loops(SpreadShape { rows, cols, experts, per_token, slots: Slots::Queues(&starts) }, &routes);
    }
    for (rows, cols) in SIZES {
        for most in [rows, rows.div_ceil(2)] {
            check::<f32>(rows, cols, most);
            check::<f64>(rows, cols, most);
        }
    }
}

#[test]
#[should_panic(expected = "a row of a queue is nobody's")]
fn every_row_of_a_queue_is_a_choices() {
    let routes = [0.0, 1.0, 0.0, 0.0, 0.5, 0.5];
    let shape = SpreadShape { rows: 1, cols: 1, experts: 2, per_token: 2, slots: Slots::Queues(&[0, 1, 3]) };
    spread(&Pool::new(1), shape, &[1.0], &routes, &mut [0.0; 3]);
}

#[test]
fn the_gradients_of_combining_equal_differences() {
    let (shape, routes) = spread_of::<f64>(16, 3);
    let x = random::<f64>(1, start_of(shape, shape.experts) * 3);
    let dy = random::<f64>(2, 48);
    let mut dx = vec![0.0; x.len()];
    let mut dweights = vec![0.0; 48];
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
    let blocks = start_of(shape, shape.experts) * cols;
    let y = &mut y[..blocks];
    let back = &mut back[..blocks];
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
    let rows = 16;
    let cols = 3;
    let (whole, routes) = spread_of::<f64>(rows, cols);
    let x = random::<f64>(1, rows * cols);
    let slots = rows_of(whole, 0);
    let of_piece = slots / 2;
    let len = whole.experts * slots * cols;
    let cut = SpreadShape { slots: Slots::Blocks { slots, pieces: 2 }, ..whole };
    let [mut one, mut two] = [(); 2].map(|()| vec![f64::NAN; len]);
    spread(&Pool::new(1), whole, &x, &routes, &mut one);
    spread(&Pool::new(1), cut, &x, &routes, &mut two);
    let row = |rows: &[f64], at: usize| rows[at * cols..(at + 1) * cols].to_vec();
    for expert in 0..whole.experts {
        for slot in 0..slots {
            let at = (slot / of_piece * whole.experts + expert) * of_piece + slot % of_piece;
            assert_eq!(row(&two, at), row(&one, expert * slots + slot), "slot {slot} of expert {expert}");
        }
    }
}
