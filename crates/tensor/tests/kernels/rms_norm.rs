use crate::support::{SHAPES, assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

const EPS: f64 = 1e-5;

/// An RMS norm whose columns are held in `parts` shards, the row statistics summed over them; y, dx
/// and dgamma over all columns.
fn sharded<T: Element>(
    pool: &Pool,
    (rows, width, parts): (usize, usize, usize),
    x: &[T],
    gamma: &[T],
    dy: &[T],
    accumulate: bool,
) -> [Vec<T>; 3] {
    let cols = width / parts;
    let norm = NormShape { rows, cols, width, eps: EPS };
    let shard = |x: &[T]| {
        let mut y = vec![T::ZERO; x.len()];
        pack_columns(pool, Shape { rows, cols: width }, parts, x, &mut y);
        y
    };
    let whole = |x: &[T]| {
        let mut y = vec![T::ZERO; x.len()];
        unpack_columns(pool, Shape { rows, cols: width }, parts, x, &mut y);
        y
    };
    let x = shard(x);
    let dy = shard(dy);
    let block = |part: usize| part * rows * cols..(part + 1) * rows * cols;
    let column = |part: usize| part * cols..(part + 1) * cols;
    let mut squares = vec![T::ZERO; rows];
    let mut local = vec![T::ZERO; rows];
    for part in 0..parts {
        rms_norm_squares(pool, Shape { rows, cols }, &x[block(part)], &mut local);
        add_assign(pool, &mut squares, &local);
    }
    let mut dgamma = gamma.to_vec();
    let mut reduced = vec![T::ZERO; rows];
    for part in 0..parts {
        let x = &x[block(part)];
        let dy = &dy[block(part)];
        let gamma = &gamma[column(part)];
        let dgamma = &mut dgamma[column(part)];
        rms_norm_backward_sums(pool, norm, x, &squares, gamma, dy, &mut local, dgamma, accumulate);
        add_assign(pool, &mut reduced, &local);
    }
    let mut y = vec![T::ZERO; x.len()];
    let mut dx = x.clone();
    for part in 0..parts {
        let x = &x[block(part)];
        let dy = &dy[block(part)];
        let gamma = &gamma[column(part)];
        rms_norm_forward(pool, norm, x, &squares, gamma, &mut y[block(part)]);
        let dx = &mut dx[block(part)];
        rms_norm_backward(pool, norm, x, &squares, gamma, dy, &reduced, dx, accumulate);
    }
    [whole(&y), whole(&dx), dgamma]
}

fn plain(width: usize, x: &[f64], gamma: &[f64]) -> Vec<f64> {
    let mut y = Vec::new();
    for x in x.chunks_exact(width) {
        let rms = (x.iter().map(|x| x * x).sum::<f64>() / width as f64 + EPS).sqrt();
        y.extend(x.iter().zip(gamma).map(|(x, g)| x / rms * g));
    }
    y
}

/// dx and dgamma.
fn plain_gradient(width: usize, x: &[f64], gamma: &[f64], dy: &[f64]) -> [Vec<f64>; 2] {
    let mut dx = Vec::new();
    let mut dgamma = vec![0.0; width];
    let mean = |x: &mut dyn Iterator<Item = f64>| x.sum::<f64>() / width as f64;
    for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
        let rrms = 1.0 / (mean(&mut x.iter().map(|x| x * x)) + EPS).sqrt();
        let along = mean(&mut x.iter().zip(dy).zip(gamma).map(|((x, dy), g)| dy * g * x * rrms));
        for (col, (x, dy)) in x.iter().zip(dy).enumerate() {
            dx.push(rrms * (dy * gamma[col] - x * rrms * along));
            dgamma[col] += dy * x * rrms;
        }
    }
    [dx, dgamma]
}

fn check<T: Element>(rows: usize, width: usize, parts: usize) {
    let shape = (rows, width, parts);
    let x = random::<T>(1, rows * width);
    let dy = random::<T>(2, rows * width);
    let gamma = random::<T>(3, width);
    let all = on_any_threads(|pool| {
        let first = sharded(pool, shape, &x, &gamma, &dy, false);
        let [_, dx, dgamma] = sharded(pool, shape, &x, &gamma, &dy, true);
        // Accumulated results: the old contents were x and gamma.
        [first.concat(), dx, dgamma].concat()
    });
    let mut rest = &all[..];
    let mut take = |len: usize| {
        let (taken, left) = rest.split_at(len);
        rest = left;
        taken
    };
    let y = take(x.len());
    let dx = take(x.len());
    let dgamma = take(width);
    assert_close("y", y, &plain(width, &wide(&x), &wide(&gamma)));
    let plus = |x: &[T], y: &[T]| wide(x).iter().zip(wide(y)).map(|(x, y)| x + y).collect::<Vec<_>>();
    assert_close("dx +=", take(x.len()), &plus(dx, &x));
    assert_close("dgamma +=", take(width), &plus(dgamma, &gamma));

    let [exact_dx, exact_dgamma] = plain_gradient(width, &wide(&x), &wide(&gamma), &wide(&dy));
    assert_close("dx", dx, &exact_dx);
    assert_close("dgamma", dgamma, &exact_dgamma);
    // The loops themselves are held against differences.
    if T::NAME == "f64" && x.len() < 600 {
        let x = wide(&x);
        let g = wide(&gamma);
        let dy = wide(&dy);
        assert_gradient("dx", &x, &exact_dx, |x| dot(&plain(width, x, &g), &dy));
        assert_gradient("dgamma", &g, &exact_dgamma, |g| dot(&plain(width, &x, g), &dy));
    }
}

#[test]
fn rms_norm_in_pieces_equals_loops_and_differences() {
    for (rows, cols) in SHAPES {
        for parts in [1, 3] {
            check::<f32>(rows, cols * parts, parts);
            check::<f64>(rows, cols * parts, parts);
        }
    }
}
