use crate::support::{assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

const BASE: f64 = 100.0;

/// Of the pairs of heads of d numbers.
fn frequencies(d: usize) -> Vec<f64> {
    (0..d / 2).map(|i| BASE.powf(-2.0 * i as f64 / d as f64)).collect()
}

/// Every number of every query and key by its own rotation; (groups, heads, head_dim).
fn plain((groups, heads, d): (usize, usize, usize), positions: &[usize], x: &[f64], back: bool) -> Vec<f64> {
    let cols = groups * (heads + 2) * d;
    let turned = |row: usize, col: usize| {
        let block = col / d % (heads + 2);
        let i = col % d;
        let value = x[row * cols + col];
        if block == heads + 1 {
            return value;
        }
        let angle = positions[row] as f64 * BASE.powf(-2.0 * (i % (d / 2)) as f64 / d as f64);
        let angle = if back { -angle } else { angle };
        let (partner, sign) = if i < d / 2 { (col + d / 2, -1.0) } else { (col - d / 2, 1.0) };
        value * angle.cos() + sign * x[row * cols + partner] * angle.sin()
    };
    (0..x.len()).map(|at| turned(at / cols, at % cols)).collect()
}

fn check<T: Element>(shape: (usize, usize, usize), positions: &[usize]) {
    let (groups, heads, d) = shape;
    let rows = positions.len();
    let cols = groups * (heads + 2) * d;
    // The table has the positions in reverse.
    let rotary = Rotary::<T>::new(d, &frequencies(d), positions.iter().rev().copied());
    let x = random::<T>(1, rows * cols);
    let run = |x: &[T], back: bool| {
        on_any_threads(|pool| {
            let mut y = x.to_vec();
            let turned = rotate(
                pool,
                GroupShape { rows, groups, heads, head_dim: d, value_dim: d },
                &rotary,
                |row| rows - 1 - row,
                &mut y,
                back,
            );
            assert_eq!(turned, rows * groups * (heads + 1) * d);
            y
        })
    };
    let there = run(&x, false);
    assert_close("rotated", &there, &plain(shape, positions, &wide(&x), false));
    assert_close("turned back", &run(&there, true), &wide(&x));
    if x.len() < 200 {
        let weights = random::<f64>(2, x.len());
        let gradient = plain(shape, positions, &weights, true);
        assert_gradient("x", &wide(&x), &gradient, |x| dot(&plain(shape, positions, x, false), &weights));
    }
}

#[test]
fn rotations_equal_loops_and_turn_gradients_back() {
    for shape in [(1, 1, 2), (2, 1, 4), (2, 3, 6), (1, 8, 64)] {
        for positions in [&[][..], &[0, 1, 7, 3], &(0..300).collect::<Vec<_>>()] {
            check::<f32>(shape, positions);
            check::<f64>(shape, positions);
        }
    }
}

#[test]
fn scores_depend_on_distances_alone() {
    let x = random::<f64>(1, 3 * 8);
    let score = |query: usize, key: usize| {
        let rotary = Rotary::new(8, &frequencies(8), [query, key].into_iter());
        let mut rows = [&x[..], &x[..]].concat();
        rotate(
            &Pool::new(1),
            GroupShape { rows: 2, groups: 1, heads: 1, head_dim: 8, value_dim: 8 },
            &rotary,
            |row| row,
            &mut rows,
            false,
        );
        dot(&rows[..8], &rows[24 + 8..24 + 16])
    };
    assert!((score(5, 2) - score(105, 102)).abs() < 1e-12);
    assert!((score(5, 2) - score(5, 4)).abs() > 0.1);
}

#[test]
fn numbers_beyond_the_pairs_stay() {
    let rotary = Rotary::<f64>::new(5, &frequencies(4), 3..4);
    let x = random::<f64>(1, 15);
    let mut turned = x.clone();
    let shape = GroupShape { rows: 1, groups: 1, heads: 1, head_dim: 5, value_dim: 5 };
    rotate(&Pool::new(1), shape, &rotary, |_| 0, &mut turned, false);
    let narrow: Vec<f64> = [0, 5, 10].iter().flat_map(|at| x[*at..at + 4].to_vec()).collect();
    let exact = plain((1, 1, 4), &[3], &narrow, false);
    for (head, at) in [0, 5, 10].into_iter().enumerate() {
        assert_close("what turns", &turned[at..at + 4], &exact[4 * head..4 * head + 4]);
        assert_eq!(turned[at + 4], x[at + 4]);
    }
}

#[test]
fn values_of_any_width_stay() {
    let rotary = Rotary::<f64>::new(4, &frequencies(4), 3..5);
    let x = random::<f64>(1, 2 * 2 * 11);
    let mut turned = x.clone();
    let shape = GroupShape { rows: 2, groups: 2, heads: 1, head_dim: 4, value_dim: 3 };
    rotate(&Pool::new(1), shape, &rotary, |row| row, &mut turned, false);
    for (group, (turned, x)) in turned.chunks(11).zip(x.chunks(11)).enumerate() {
        assert_eq!(turned[8..], x[8..]);
        let narrow: Vec<f64> = x[..8].iter().copied().chain([0.0; 4]).collect();
        assert_close("what turns", &turned[..8], &plain((1, 1, 4), &[3 + group / 2], &narrow, false)[..8]);
    }
}
