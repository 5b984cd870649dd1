//! Layer norm, RMS norm, norms of heads.

use quadrille_cuda::{Gamma, Statistics};
use quadrille_tensor::{
    Element, HeadNorm, NormShape, Shape, Stored, head_norm_backward, head_norm_forward, norm_backward,
    norm_backward_sums, norm_centered_squares, norm_forward, norm_row_sums, rms_norm_backward, rms_norm_backward_sums,
    rms_norm_forward, rms_norm_squares,
};

use crate::support::{Value, equal, in_each_format, in_every_seed, near, numbers, pool};

/// Half of the columns of wider rows.
const SHAPE: NormShape = NormShape { rows: 70, cols: 45, width: 90, eps: 1e-5 };
const N: usize = SHAPE.rows * SHAPE.cols;
const PLAIN: Shape = Shape { rows: SHAPE.rows, cols: SHAPE.cols };

/// A vector with what is stored of it as a distance from one, or as it is.
fn gamma<T: Element>(stored: &[T], offset: bool) -> Vec<T> {
    stored.iter().map(|g| if offset { T::ONE + *g } else { *g }).collect()
}

fn layer_norm<S: Value>() {
    let x = numbers::<S>(1, N);
    let dy = numbers::<S>(2, N);
    let dx = numbers::<S>(3, N);
    let [stored, beta, dgamma, dbeta] = [4, 5, 6, 7].map(|name| numbers::<S::Wide>(name, SHAPE.cols));
    let mut sums = vec![S::Wide::ZERO; SHAPE.rows];
    let mut squares = vec![S::Wide::ZERO; SHAPE.rows];
    norm_row_sums(&pool(), PLAIN, &x, &mut sums);
    norm_centered_squares(&pool(), SHAPE, &x, &sums, &mut squares);
    for (accumulate, offset) in [(false, true), (true, false)] {
        let g = gamma(&stored, offset);
        let mut y = x.clone();
        let mut out = vec![S::Wide::ZERO; 2 * SHAPE.rows];
        let mut dx_to = dx.clone();
        let mut dg = dgamma.clone();
        let mut db = dbeta.clone();
        let before = (dgamma.clone(), dbeta.clone(), dx.clone());
        norm_forward(&pool(), SHAPE, &x, &sums, &squares, &g, &beta, &mut y);
        norm_backward_sums(&pool(), SHAPE, &x, &sums, &squares, &g, &dy, &mut out, &mut dg, &mut db, accumulate);
        norm_backward(&pool(), SHAPE, &x, &sums, &squares, &g, &dy, &out, &mut dx_to, accumulate);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let x = device.up(&x);
            let dy = device.up(&dy);
            let beta = device.up(&beta);
            let reals = |len| device.poison::<S::Wide>(len);
            let sums = reals(SHAPE.rows);
            let squares = reals(SHAPE.rows);
            let out = reals(2 * SHAPE.rows);
            let [dgamma, dbeta] = [&dgamma, &dbeta].map(|d| if accumulate { device.up(d) } else { reals(SHAPE.cols) });
            let y = device.poison::<S>(N);
            let dx = if accumulate { device.up(&dx) } else { device.poison::<S>(N) };
            let of = Statistics { sums: Some(sums), squares };
            let gamma = Gamma { stored: device.up(&stored), offset };
            queue.norm_row_sums(PLAIN, x, sums).unwrap();
            queue.norm_centered_squares(SHAPE, x, sums, squares).unwrap();
            queue.norm_forward(SHAPE, x, of, gamma, Some(beta), y).unwrap();
            queue.norm_backward_sums(SHAPE, x, of, gamma, dy, out, dgamma, Some(dbeta), accumulate).unwrap();
            queue.norm_backward(SHAPE, x, of, gamma, dy, out, dx, accumulate).unwrap();
            let values = [y, dx].map(|x| device.down::<S>(x));
            // At once they are the same bits.
            let all_sums = reals(SHAPE.rows);
            let all_squares = reals(SHAPE.rows);
            let all_out = reals(2 * SHAPE.rows);
            let [all_dg, all_db] =
                [&before.0, &before.1].map(|d| if accumulate { device.up(d) } else { reals(SHAPE.cols) });
            let all_y = device.poison::<S>(N);
            let all_dx = if accumulate { device.up(&before.2) } else { device.poison::<S>(N) };
            let all = Statistics { sums: Some(all_sums), squares: all_squares };
            queue.whole_norm(SHAPE, x, all, gamma, Some(beta), all_y).unwrap();
            let add = [accumulate; 2];
            queue.whole_norm_backward(SHAPE, x, of, gamma, dy, all_out, all_dg, Some(all_db), all_dx, add).unwrap();
            [(y, all_y), (dx, all_dx)]
                .into_iter()
                .for_each(|(one, all)| equal(&device.down::<S>(all), &device.down::<S>(one)));
            let reals = [(sums, all_sums), (squares, all_squares), (out, all_out), (dgamma, all_dg), (dbeta, all_db)];
            reals.into_iter().for_each(|(one, all)| equal(&device.down::<S::Wide>(all), &device.down::<S::Wide>(one)));
            (values, [sums, squares, out, dgamma, dbeta].map(|x| device.down::<S::Wide>(x)))
        });
        [&y, &dx_to].iter().zip(&got.0).for_each(|(expected, got)| equal(got, expected));
        [&sums, &squares, &out].iter().zip(&got.1).for_each(|(expected, got)| equal(got, expected));
        [&dg, &db].iter().zip(&got.1[3..]).for_each(|(expected, got)| near(got, expected));
    }
}

fn rms_norm<S: Value>() {
    let x = numbers::<S>(1, N);
    let dy = numbers::<S>(2, N);
    let dx = numbers::<S>(3, N);
    let [stored, dgamma] = [4, 6].map(|name| numbers::<S::Wide>(name, SHAPE.cols));
    let mut squares = vec![S::Wide::ZERO; SHAPE.rows];
    rms_norm_squares(&pool(), PLAIN, &x, &mut squares);
    for (accumulate, offset) in [(false, true), (true, false)] {
        let g = gamma(&stored, offset);
        let mut y = x.clone();
        let mut out = squares.clone();
        let mut dx_to = dx.clone();
        let mut dg = dgamma.clone();
        let before = (dgamma.clone(), dx.clone());
        rms_norm_forward(&pool(), SHAPE, &x, &squares, &g, &mut y);
        rms_norm_backward_sums(&pool(), SHAPE, &x, &squares, &g, &dy, &mut out, &mut dg, accumulate);
        rms_norm_backward(&pool(), SHAPE, &x, &squares, &g, &dy, &out, &mut dx_to, accumulate);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let x = device.up(&x);
            let dy = device.up(&dy);
            let reals = |len| device.poison::<S::Wide>(len);
            let squares = reals(SHAPE.rows);
            let out = reals(SHAPE.rows);
            let dgamma = if accumulate { device.up(&dgamma) } else { reals(SHAPE.cols) };
            let y = device.poison::<S>(N);
            let dx = if accumulate { device.up(&dx) } else { device.poison::<S>(N) };
            let of = Statistics { sums: None, squares };
            let gamma = Gamma { stored: device.up(&stored), offset };
            queue.rms_norm_squares(PLAIN, x, squares).unwrap();
            queue.norm_forward(SHAPE, x, of, gamma, None, y).unwrap();
            queue.norm_backward_sums(SHAPE, x, of, gamma, dy, out, dgamma, None, accumulate).unwrap();
            queue.norm_backward(SHAPE, x, of, gamma, dy, out, dx, accumulate).unwrap();
            // At once they are the same bits.
            let all_squares = reals(SHAPE.rows);
            let all_out = reals(SHAPE.rows);
            let all_dg = if accumulate { device.up(&before.0) } else { reals(SHAPE.cols) };
            let all_y = device.poison::<S>(N);
            let all_dx = if accumulate { device.up(&before.1) } else { device.poison::<S>(N) };
            queue.whole_norm(SHAPE, x, Statistics { sums: None, squares: all_squares }, gamma, None, all_y).unwrap();
            queue.whole_norm_backward(SHAPE, x, of, gamma, dy, all_out, all_dg, None, all_dx, [accumulate; 2]).unwrap();
            [(y, all_y), (dx, all_dx)]
                .into_iter()
                .for_each(|(one, all)| equal(&device.down::<S>(all), &device.down::<S>(one)));
            let reals = [(squares, all_squares), (out, all_out), (dgamma, all_dg)];
            reals.into_iter().for_each(|(one, all)| equal(&device.down::<S::Wide>(all), &device.down::<S::Wide>(one)));
            ([y, dx].map(|x| device.down::<S>(x)), [squares, out, dgamma].map(|x| device.down::<S::Wide>(x)))
        });
        [&y, &dx_to].iter().zip(&got.0).for_each(|(expected, got)| equal(got, expected));
        [&squares, &out].iter().zip(&got.1).for_each(|(expected, got)| equal(got, expected));
        near(&got.1[2], &dg);
    }
}

fn head_norms<S: Value>() {
    for (keys, centered) in [(false, true), (true, true), (false, false), (true, false)] {
        // Keys with what is stored as a distance from one, and gradients that nothing was added to before.
        let offset = keys;
        let accumulate = !keys;
        let norm = HeadNorm { groups: 2, heads: 3, head_dim: 6, value_dim: 5, keys, centered, eps: 1e-5 };
        let rows = 35;
        let d = norm.head_dim;
        let n = rows * norm.groups * ((norm.heads + 1) * d + norm.value_dim);
        let x = numbers::<S>(1, n);
        let dy = numbers::<S>(2, n);
        let [stored, beta, before] = [3, 4, 5].map(|name| numbers::<S::Wide>(name, d));
        let g = gamma(&stored, offset);
        let beta = centered.then_some(&beta[..]);
        let mut y = x.clone();
        let mut dx = dy.clone();
        let mut dg = before.clone();
        let mut db = before.clone();
        head_norm_forward(&pool(), norm, &g, beta, &mut y);
        head_norm_backward(&pool(), norm, &x, &g, &mut dx, &mut dg, centered.then_some(&mut db[..]), accumulate);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let y = device.up(&x);
            let x = device.up(&x);
            let dy = device.up(&dy);
            let gamma = Gamma { stored: device.up(&stored), offset };
            let to = || if accumulate || !centered { device.up(&before) } else { device.poison::<S::Wide>(d) };
            let dg = to();
            let db = to();
            queue.head_norm_forward(norm, gamma, beta.map(|beta| device.up(beta)), y).unwrap();
            queue.head_norm_backward(norm, x, gamma, dy, dg, centered.then_some(db), accumulate).unwrap();
            ([y, dy].map(|x| device.down::<S>(x)), [dg, db].map(|x| device.down::<S::Wide>(x)))
        });
        equal(&got.0[0], &y);
        near(&got.0[1], &dx);
        [&dg, &db].iter().zip(&got.1).for_each(|(expected, got)| near(got, expected));
    }
}

in_each_format!(layer_norm rms_norm head_norms);
