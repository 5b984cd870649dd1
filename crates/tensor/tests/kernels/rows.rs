//! Biases, GELU, dropout, residual.

use crate::support::{SHAPES, assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

fn plain_gelu(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + u.tanh())
}

/// By the error function, of which this is the integral: Simpson's rule from -12 on.
fn plain_gelu_erf(x: f64) -> f64 {
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let steps = 20_000_u32;
    let from = -12.0;
    let width = (x - from) / f64::from(steps);
    let weighted = |i: u32| match i {
        0 => 1.0,
        i if i == steps => 1.0,
        i => f64::from(2 + 2 * (i % 2)),
    } * density(from + f64::from(i) * width);
    x * (0..=steps).map(weighted).sum::<f64>() * width / 3.0
}

fn column_sums(cols: usize, x: &[f64], start: &[f64]) -> Vec<f64> {
    let mut sums = start.to_vec();
    x.iter().enumerate().for_each(|(i, x)| sums[i % cols] += x);
    sums
}

fn check_bias<T: Element>(rows: usize, cols: usize) {
    let x = random::<T>(1, rows * cols);
    let bias = random::<T>(2, cols);
    let old = random::<T>(3, cols);
    let y = on_any_threads(|pool| {
        let mut y = x.clone();
        bias_forward(pool, Shape { rows, cols }, &mut y, &bias);
        y
    });
    let expected: Vec<_> = wide(&x).iter().enumerate().map(|(i, x)| x + bias[i % cols].to_f64()).collect();
    assert_close("bias", &y, &expected);
    for accumulate in [false, true] {
        let sums = on_any_threads(|pool| {
            let mut sums = old.clone();
            bias_backward(pool, Shape { rows, cols }, &x, &mut sums, accumulate);
            sums
        });
        let start = if accumulate { wide(&old) } else { vec![0.0; cols] };
        assert_close("dbias", &sums, &column_sums(cols, &wide(&x), &start));
    }
}

#[test]
fn bias_and_its_gradient_equal_loops() {
    for (rows, cols) in SHAPES {
        check_bias::<f32>(rows, cols);
        check_bias::<f64>(rows, cols);
    }
}

fn check_gelu<T: Element>(rows: usize, cols: usize, with_bias: bool) {
    let x: Vec<T> = random::<T>(1, rows * cols).iter().map(|x| *x * T::from_f64(6.0)).collect();
    let bias = random::<T>(2, cols);
    let both = on_any_threads(|pool| {
        let mut pre = x.clone();
        let mut y = vec![T::ZERO; x.len()];
        bias_curve_forward(pool, Curve::Gelu, Shape { rows, cols }, &mut pre, with_bias.then_some(&bias), &mut y);
        [pre, y].concat()
    });
    let (pre, y) = both.split_at(x.len());
    let bias = |i: usize| if with_bias { bias[i % cols].to_f64() } else { 0.0 };
    let expected: Vec<_> = wide(&x).iter().enumerate().map(|(i, x)| x + bias(i)).collect();
    assert_close("pre", pre, &expected);
    assert_close("gelu", y, &expected.iter().map(|x| plain_gelu(*x)).collect::<Vec<_>>());
    let again = on_any_threads(|pool| {
        let mut y = vec![T::ZERO; pre.len()];
        activate_curve(pool, Curve::Gelu, pre, &mut y);
        y
    });
    let bits = |x: &[T]| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>();
    assert!(bits(&again) == bits(y), "{} gelu, {rows} x {cols}, of a stored pre-activation", T::NAME);

    let dy = random::<T>(3, x.len());
    let old = random::<T>(4, cols);
    let both = on_any_threads(|pool| {
        let mut dx = dy.clone();
        let mut dbias = old.clone();
        bias_curve_backward(
            pool,
            Curve::Gelu,
            Shape { rows, cols },
            pre,
            &mut dx,
            with_bias.then_some(&mut dbias),
            true,
        );
        [dx, dbias].concat()
    });
    let (dx, dbias) = both.split_at(x.len());
    let slope = |x: f64| (plain_gelu(x + 1e-4) - plain_gelu(x - 1e-4)) / 2e-4;
    let expected: Vec<_> = wide(pre).iter().zip(wide(&dy)).map(|(x, dy)| dy * slope(*x)).collect();
    for (i, (dx, e)) in wide(dx).iter().zip(&expected).enumerate() {
        assert!(
            (dx - e).abs() < if T::NAME == "f32" { 1e-6 } else { 1e-7 },
            "gelu's slope at {} is {dx}, not {e}",
            pre[i]
        );
    }
    let sums = if with_bias { column_sums(cols, &wide(dx), &wide(&old)) } else { wide(&old) };
    assert_close("dbias", dbias, &sums);
}

#[test]
fn gelu_and_its_gradient_equal_loops() {
    for (rows, cols) in SHAPES {
        for with_bias in [false, true] {
            check_gelu::<f32>(rows, cols, with_bias);
            check_gelu::<f64>(rows, cols, with_bias);
        }
    }
}

#[test]
fn gelu_is_finite_and_accurate_far_from_zero() {
    let x = [-1e4_f32, -100.0, -12.0, -9.0, -5.0, -1e-6, 0.0, 1e-6, 5.0, 9.0, 12.0, 100.0, 1e4];
    let mut pre = x;
    let mut y = [0.0; 13];
    let mut dx = [1.0; 13];
    bias_curve_forward(&Pool::new(1), Curve::Gelu, Shape { rows: 1, cols: 13 }, &mut pre, None, &mut y);
    bias_curve_backward(&Pool::new(1), Curve::Gelu, Shape { rows: 1, cols: 13 }, &pre, &mut dx, None, false);
    for ((x, y), dx) in x.into_iter().zip(y).zip(dx) {
        // 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), which does not cancel for negative x.
        let u = (2.0 / std::f64::consts::PI).sqrt() * (f64::from(x) + 0.044715 * f64::from(x).powi(3));
        let expected = f64::from(x) / (1.0 + (-2.0 * u).exp());
        assert!((f64::from(y) - expected).abs() <= 1e-5 * expected.abs() + 1e-30, "gelu({x}) is {y}, not {expected}");
        assert!(dx.is_finite() && (x.abs() < 12.0 || (dx - f32::from(x > 0.0)).abs() < 1e-6), "gelu'({x}) is {dx}");
    }
}

/// Its values and slopes, also where the distribution has no more than 1e-15 left below.
#[test]
fn gelu_by_the_error_function_is_an_integral() {
    fn check<T: Element>(tolerance: f64) {
        let x: Vec<T> = (-80..=80).map(|i| T::from_f64(0.1 * f64::from(i))).collect();
        let shape = Shape { rows: 1, cols: x.len() };
        let mut pre = x.clone();
        let mut y = vec![T::ZERO; x.len()];
        let mut dx = vec![T::ONE; x.len()];
        bias_curve_forward(&Pool::new(1), Curve::GeluErf, shape, &mut pre, None, &mut y);
        bias_curve_backward(&Pool::new(1), Curve::GeluErf, shape, &pre, &mut dx, None, false);
        for ((x, y), dx) in wide(&x).into_iter().zip(wide(&y)).zip(wide(&dx)) {
            let expected = plain_gelu_erf(x);
            assert!((y - expected).abs() <= tolerance * expected.abs() + 1e-30, "gelu({x}) is {y}, not {expected}");
            let slope = (plain_gelu_erf(x + 1e-4) - plain_gelu_erf(x - 1e-4)) / 2e-4;
            assert!((dx - slope).abs() <= 1e-6, "gelu's slope at {x} is {dx}, not {slope}");
        }
    }
    check::<f64>(1e-12);
    check::<f32>(2e-5);
    let far = [-1e4_f32, -100.0, 100.0, 1e4];
    let shape = Shape { rows: 1, cols: 4 };
    let mut pre = far;
    let mut y = [1.0; 4];
    let mut dx = [1.0; 4];
    bias_curve_forward(&Pool::new(1), Curve::GeluErf, shape, &mut pre, None, &mut y);
    bias_curve_backward(&Pool::new(1), Curve::GeluErf, shape, &pre, &mut dx, None, false);
    assert_eq!((y, dx), ([0.0, 0.0, 100.0, 1e4], [0.0, 0.0, 1.0, 1.0]));
}

fn keep(row: usize, col: usize) -> bool {
    (row * 7 + col * 13) % 5 != 2
}

fn check_residual<T: Element>(rows: usize, cols: usize, with_bias: bool, with_dropout: bool) {
    let x = random::<T>(1, rows * cols);
    let r = random::<T>(2, rows * cols);
    let bias = random::<T>(3, cols);
    let factor = T::from_f64(1.25);
    let y = on_any_threads(|pool| {
        let mut y = x.clone();
        let dropout = with_dropout.then_some((factor, &keep as _));
        residual_forward(pool, Shape { rows, cols }, &mut y, with_bias.then_some(&bias), &r, dropout);
        y
    });
    let expected = |i: usize| {
        let x = x[i].to_f64() + if with_bias { bias[i % cols].to_f64() } else { 0.0 };
        let factor = match (with_dropout, keep(i / cols, i % cols)) {
            (false, _) => 1.0,
            (true, kept) => 1.25 * f64::from(kept),
        };
        r[i].to_f64() + x * factor
    };
    assert_close("residual", &y, &(0..x.len()).map(expected).collect::<Vec<_>>());
}

#[test]
fn residual_equals_loops() {
    for (rows, cols) in SHAPES {
        for (with_bias, with_dropout) in [(false, false), (false, true), (true, false), (true, true)] {
            check_residual::<f32>(rows, cols, with_bias, with_dropout);
            check_residual::<f64>(rows, cols, with_bias, with_dropout);
        }
    }
}

#[test]
fn dropout_keeps_what_it_is_told_and_its_gradient_is_its_transpose() {
    for (rows, cols) in SHAPES {
        let x = random::<f64>(1, rows * cols);
        let run = |x: &[f64]| {
            on_any_threads(|pool| {
                let mut y = x.to_vec();
                dropout(pool, Shape { rows, cols }, &mut y, 1.5, keep);
                y
            })
        };
        let y = run(&x);
        for (i, (x, y)) in x.iter().zip(&y).enumerate() {
            assert_eq!(*y, if keep(i / cols, i % cols) { x * 1.5 } else { 0.0 });
        }
        if x.len() < 50 {
            let weights = random::<f64>(2, x.len());
            let mut dx = weights.clone();
            dropout(&Pool::new(2), Shape { rows, cols }, &mut dx, 1.5, keep);
            assert_gradient("dropout", &x, &dx, |x| dot(&run(x), &weights));
        }
    }
}
