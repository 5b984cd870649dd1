use crate::support::{SHAPES, assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

const EPS: f64 = 1e-5;

/// A layer norm whose columns are held in `parts` shards, the row statistics summed over them;
/// y and, given dy, dx, dgamma, dbeta, each as one array over all columns.
struct Sharded<T> {
    y: Vec<T>,
    dx: Vec<T>,
    dgamma: Vec<T>,
    dbeta: Vec<T>,
}

fn sharded<T: Element>(
    pool: &Pool,
    (rows, width, parts): (usize, usize, usize),
    x: &[T],
    gamma: &[T],
    beta: &[T],
    dy: &[T],
    accumulate: bool,
) -> Sharded<T> {
    let cols = width / parts;
    let norm = NormShape { rows, cols, width, eps: EPS };
    let shard = |x: &[T]| {
        let mut y = vec![T::ZERO; x.len()];
        pack_columns(pool, Shape { rows: x.len() / width, cols: width }, parts, x, &mut y);
        y
    };
    let whole = |x: &[T]| {
        let mut y = vec![T::ZERO; x.len()];
        unpack_columns(pool, Shape { rows: x.len() / width, cols: width }, parts, x, &mut y);
        y
    };
    let x = shard(x);
    let dy = shard(dy);
    let block = |part: usize| part * rows * cols..(part + 1) * rows * cols;
    let column = |part: usize| part * cols..(part + 1) * cols;
    let reduce = |len: usize, piece: &dyn Fn(usize, &mut [T])| {
        let mut sum = vec![T::ZERO; len];
        for part in 0..parts {
            let mut local = vec![T::ZERO; len];
            piece(part, &mut local);
            add_assign(pool, &mut sum, &local);
        }
        sum
    };
    let sums = reduce(rows, &|part, out| norm_row_sums(pool, Shape { rows, cols }, &x[block(part)], out));
    let squares = reduce(rows, &|part, out| {
        norm_centered_squares(pool, norm, &x[block(part)], &sums, out);
    });
    let mut dgamma = gamma.to_vec();
    let mut dbeta = beta.to_vec();
    let pairs = std::cell::RefCell::new((&mut dgamma, &mut dbeta));
    let reduced = reduce(rows * 2, &|part, out| {
        let (dgamma, dbeta) = &mut *pairs.borrow_mut();
        let x = &x[block(part)];
        let dy = &dy[block(part)];
        let gamma = &gamma[column(part)];
        let dgamma = &mut dgamma[column(part)];
        let dbeta = &mut dbeta[column(part)];
        norm_backward_sums(pool, norm, x, &sums, &squares, gamma, dy, out, dgamma, dbeta, accumulate);
    });
    let mut y = vec![T::ZERO; x.len()];
    let mut dx = x.clone();
    for part in 0..parts {
        let x = &x[block(part)];
        let dy = &dy[block(part)];
        let gamma = &gamma[column(part)];
        let beta = &beta[column(part)];
        norm_forward(pool, norm, x, &sums, &squares, gamma, beta, &mut y[block(part)]);
        let dx = &mut dx[block(part)];
        norm_backward(pool, norm, x, &sums, &squares, gamma, dy, &reduced, dx, accumulate);
    }
    Sharded { y: whole(&y), dx: whole(&dx), dgamma, dbeta }
}

fn plain(width: usize, x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let mut y = Vec::new();
    for x in x.chunks_exact(width) {
        let mean = x.iter().sum::<f64>() / width as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let normal = x.iter().map(|x| (x - mean) / (variance + EPS).sqrt());
        y.extend(normal.zip(gamma).zip(beta).map(|((x, g), b)| x * g + b));
    }
    y
}

/// dx, dgamma, dbeta.
fn plain_gradient(width: usize, x: &[f64], gamma: &[f64], dy: &[f64]) -> [Vec<f64>; 3] {
    let mut dx = Vec::new();
    let mut dgamma = vec![0.0; width];
    let mut dbeta = vec![0.0; width];
    let mean = |x: &mut dyn Iterator<Item = f64>| x.sum::<f64>() / width as f64;
    for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
        let centre = mean(&mut x.iter().copied());
        let rstd = 1.0 / (mean(&mut x.iter().map(|x| (x - centre).powi(2))) + EPS).sqrt();
        let normal: Vec<f64> = x.iter().map(|x| (x - centre) * rstd).collect();
        let scaled: Vec<f64> = dy.iter().zip(gamma).map(|(dy, g)| dy * g).collect();
        let first = mean(&mut scaled.iter().copied());
        let second = mean(&mut scaled.iter().zip(&normal).map(|(d, x)| d * x));
        dx.extend(scaled.iter().zip(&normal).map(|(d, x)| rstd * (d - first - x * second)));
        for (col, (dy, x)) in dy.iter().zip(&normal).enumerate() {
            dgamma[col] += dy * x;
            dbeta[col] += dy;
        }
    }
    [dx, dgamma, dbeta]
}

fn check<T: Element>(rows: usize, width: usize, parts: usize) {
    let shape = (rows, width, parts);
    let x = random::<T>(1, rows * width);
    let dy = random::<T>(2, rows * width);
    let gamma = random::<T>(3, width);
    let beta = random::<T>(4, width);
    let all = on_any_threads(|pool| {
        let first = sharded(pool, shape, &x, &gamma, &beta, &dy, false);
        let second = sharded(pool, shape, &x, &gamma, &beta, &dy, true);
        // Accumulated results: the old contents were x, gamma and beta.
        [first.y, first.dx, first.dgamma, first.dbeta, second.dx, second.dgamma, second.dbeta].concat()
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
    let dbeta = take(width);
    assert_close("y", y, &plain(width, &wide(&x), &wide(&gamma), &wide(&beta)));
    let plus = |x: &[T], y: &[T]| wide(x).iter().zip(wide(y)).map(|(x, y)| x + y).collect::<Vec<_>>();
    assert_close("dx +=", take(x.len()), &plus(dx, &x));
    assert_close("dgamma +=", take(width), &plus(dgamma, &gamma));
    assert_close("dbeta +=", take(width), &plus(dbeta, &beta));

    let exact = plain_gradient(width, &wide(&x), &wide(&gamma), &wide(&dy));
    assert_close("dx", dx, &exact[0]);
    assert_close("dgamma", dgamma, &exact[1]);
    assert_close("dbeta", dbeta, &exact[2]);
    // The loops themselves are held against differences.
    if T::NAME == "f64" && width > 1 && x.len() < 600 {
        let x = wide(&x);
        let g = wide(&gamma);
        let b = wide(&beta);
        let dy = wide(&dy);
        assert_gradient("dx", &x, &exact[0], |x| dot(&plain(width, x, &g, &b), &dy));
        assert_gradient("dgamma", &g, &exact[1], |g| dot(&plain(width, &x, g, &b), &dy));
        assert_gradient("dbeta", &b, &exact[2], |b| dot(&plain(width, &x, &g, b), &dy));
    }
}

#[test]
fn layer_norm_in_pieces_equals_loops_and_differences() {
    for (rows, cols) in SHAPES {
        for parts in [1, 3] {
            check::<f32>(rows, cols * parts, parts);
            check::<f64>(rows, cols * parts, parts);
        }
    }
}
