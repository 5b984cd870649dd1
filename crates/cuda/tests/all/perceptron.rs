//! Biases, functions of perceptrons, dropout, the residual stream.

use quadrille_cuda::{Draw, ElementMask, Rows};
use quadrille_tensor::{
    ContextPart, Curve, Element, Shape, Stored, activate_curve, activate_gated, bias_backward, bias_curve_backward,
    bias_curve_forward, bias_forward, bias_gated_backward, bias_gated_forward, dropout, residual_forward,
};

use crate::random::keeps;
use crate::support::{Value, alike, equal, in_each_format, in_every_seed, near, numbers, pool};

const SHAPE: Shape = Shape { rows: 70, cols: 37 };
const N: usize = SHAPE.rows * SHAPE.cols;
const CURVES: [Curve; 5] = [Curve::Gelu, Curve::GeluErf, Curve::Silu, Curve::Relu, Curve::Relu2];

fn biases<S: Value>() {
    let x = numbers::<S>(1, N);
    let bias = numbers::<S::Wide>(2, SHAPE.cols);
    let before = numbers::<S::Wide>(3, SHAPE.cols);
    for accumulate in [false, true] {
        let mut y = x.clone();
        let mut dbias = before.clone();
        bias_backward(&pool(), SHAPE, &x, &mut dbias, accumulate);
        bias_forward(&pool(), SHAPE, &mut y, &bias);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let x = device.up(&x);
            let dbias = if accumulate { device.up(&before) } else { device.poison::<S::Wide>(SHAPE.cols) };
            queue.bias_backward(SHAPE, x, dbias, accumulate).unwrap();
            queue.bias_forward(SHAPE, x, device.up(&bias)).unwrap();
            (device.down::<S>(x), device.down::<S::Wide>(dbias))
        });
        equal(&got.0, &y);
        near(&got.1, &dbias);
    }
}

/// Fewer rows than blocks of rows, and none.
fn few_rows<S: Value>() {
    for rows in [0, 1, 5] {
        let shape = Shape { rows, cols: 3 };
        let dy = numbers::<S>(1, rows * 3);
        let mut expected = vec![S::Wide::ZERO; 3];
        bias_backward(&pool(), shape, &dy, &mut expected, false);
        let got = in_every_seed(|device| {
            let dbias = device.poison::<S::Wide>(3);
            device.queue().bias_backward(shape, device.up(&dy), dbias, false).unwrap();
            device.down::<S::Wide>(dbias)
        });
        near(&got, &expected);
    }
}

fn curves<S: Value>() {
    let pre = numbers::<S>(1, N);
    let dy = numbers::<S>(2, N);
    let bias = numbers::<S::Wide>(3, SHAPE.cols);
    for (curve, bias) in CURVES.into_iter().flat_map(|curve| [(curve, None), (curve, Some(&bias))]) {
        let mut stored = pre.clone();
        let mut y = pre.clone();
        let mut again = pre.clone();
        let mut d = dy.clone();
        let mut dbias = vec![S::Wide::ZERO; SHAPE.cols];
        let slice = bias.map(|bias| &bias[..]);
        bias_curve_forward(&pool(), curve, SHAPE, &mut stored, slice, &mut y);
        activate_curve(&pool(), curve, &stored, &mut again);
        bias_curve_backward(&pool(), curve, SHAPE, &stored, &mut d, Some(&mut dbias), false);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let pre = device.up(&pre);
            let dy = device.up(&dy);
            let y = device.poison::<S>(N);
            let again = device.poison::<S>(N);
            let dbias = device.poison::<S::Wide>(SHAPE.cols);
            queue.bias_curve_forward(curve, SHAPE, pre, bias.map(|bias| device.up(bias)), y).unwrap();
            queue.activate_curve(curve, pre, again).unwrap();
            queue.bias_curve_backward(curve, SHAPE, pre, dy, Some(dbias), false).unwrap();
            ([pre, y, again, dy].map(|x| device.down::<S>(x)), device.down::<S::Wide>(dbias))
        });
        [&stored, &y, &again, &d].iter().zip(&got.0).for_each(|(expected, got)| alike(got, expected));
        near(&got.1, &dbias);
    }
}

fn gated<S: Value>() {
    let pre = numbers::<S>(1, 2 * N);
    let dy = numbers::<S>(2, N);
    let bias = numbers::<S::Wide>(3, 2 * SHAPE.cols);
    for (curve, bias) in CURVES.into_iter().flat_map(|curve| [(curve, None), (curve, Some(&bias))]) {
        let mut stored = pre.clone();
        let mut y = dy.clone();
        let mut again = dy.clone();
        let mut dbias = vec![S::Wide::ZERO; 2 * SHAPE.cols];
        bias_gated_forward(&pool(), curve, SHAPE, &mut stored, bias.map(|bias| &bias[..]), &mut y);
        activate_gated(&pool(), curve, &stored, &mut again);
        let mut d = stored.clone();
        bias_gated_backward(&pool(), curve, SHAPE, &mut d, &dy, Some(&mut dbias), false);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let pre = device.up(&pre);
            let dy = device.up(&dy);
            let y = device.poison::<S>(N);
            let again = device.poison::<S>(N);
            let dbias = device.poison::<S::Wide>(2 * SHAPE.cols);
            queue.bias_gated_forward(curve, SHAPE, pre, bias.map(|bias| device.up(bias)), y).unwrap();
            queue.activate_gated(curve, pre, again).unwrap();
            let before = device.down::<S>(pre);
            queue.bias_gated_backward(curve, SHAPE, pre, dy, Some(dbias), false).unwrap();
            ([before, device.down(y), device.down(again), device.down(pre)], device.down::<S::Wide>(dbias))
        });
        [&stored, &y, &again, &d].iter().zip(&got.0).for_each(|(expected, got)| alike(got, expected));
        near(&got.1, &dbias);
    }
}

/// Dropout by logical rows and columns: those of a part of the sequences of a larger batch and matrix.
fn residuals<S: Value>() {
    let part = ContextPart { part: 1, parts: 2 };
    let rows = Rows { first_sequence: 3, first: 2, part, seq_len: 20 };
    let draw = Draw { key: [7, 9], threshold: 1 << 30, scale: 4.0 / 3.0 };
    let mask = ElementMask { draw, rows, first_col: 5, cols: 2 * SHAPE.cols };
    let logical = |row: usize| {
        let token = (rows.first + row) % part.tokens(rows.seq_len);
        let sequence = rows.first_sequence + (rows.first + row) / part.tokens(rows.seq_len);
        sequence * rows.seq_len + part.position(token, rows.seq_len)
    };
    let keep = |row, col| keeps(draw, logical(row) * mask.cols + mask.first_col + col);
    let factor = S::Wide::from_f64(draw.scale);
    let x = numbers::<S>(1, N);
    let residual = numbers::<S>(2, N);
    let bias = numbers::<S::Wide>(3, SHAPE.cols);
    let mut dropped = x.clone();
    dropout(&pool(), SHAPE, &mut dropped, factor, keep);
    for (with_bias, with_mask) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut y = x.clone();
        let of_reference = with_mask.then_some((factor, &keep as &(dyn Fn(usize, usize) -> bool + Sync)));
        residual_forward(&pool(), SHAPE, &mut y, with_bias.then_some(&bias[..]), &residual, of_reference);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let a = device.up(&x);
            let b = device.up(&x);
            let bias = with_bias.then(|| device.up(&bias));
            queue.dropout(SHAPE, a, &mask).unwrap();
            queue.residual_forward(SHAPE, b, bias, device.up(&residual), with_mask.then_some(&mask)).unwrap();
            [a, b].map(|x| device.down::<S>(x))
        });
        equal(&got[0], &dropped);
        equal(&got[1], &y);
    }
}

in_each_format!(biases few_rows curves gated residuals);
