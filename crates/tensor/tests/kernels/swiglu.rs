use crate::support::{SHAPES, assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

fn plain(pre: &[f64]) -> Vec<f64> {
    pre.chunks_exact(2).map(|pair| pair[0] / (1.0 + (-pair[0]).exp()) * pair[1]).collect()
}

fn plain_gradient(pre: &[f64], dy: &[f64]) -> Vec<f64> {
    let pairs = pre.chunks_exact(2).zip(dy).flat_map(|(pair, dy)| {
        let gate = pair[0];
        let value = pair[1];
        let sigmoid = 1.0 / (1.0 + (-gate).exp());
        [dy * value * sigmoid * (1.0 + gate * (1.0 - sigmoid)), dy * gate * sigmoid]
    });
    pairs.collect()
}

fn check<T: Element>(rows: usize, cols: usize, with_bias: bool) {
    let x: Vec<T> = random::<T>(1, rows * 2 * cols).iter().map(|x| *x * T::from_f64(6.0)).collect();
    let bias = random::<T>(2, 2 * cols);
    let both = on_any_threads(|pool| {
        let mut pre = x.clone();
        let mut y = vec![T::ZERO; rows * cols];
        bias_gated_forward(pool, Curve::Silu, Shape { rows, cols }, &mut pre, with_bias.then_some(&bias), &mut y);
        [pre, y].concat()
    });
    let (pre, y) = both.split_at(x.len());
    let bias = |i: usize| if with_bias { bias[i % (2 * cols)].to_f64() } else { 0.0 };
    let expected: Vec<_> = wide(&x).iter().enumerate().map(|(i, x)| x + bias(i)).collect();
    assert_close("pre", pre, &expected);
    assert_close("swiglu", y, &plain(&expected));
    let again = on_any_threads(|pool| {
        let mut y = vec![T::ZERO; y.len()];
        activate_gated(pool, Curve::Silu, pre, &mut y);
        y
    });
    let bits = |x: &[T]| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>();
    assert!(bits(&again) == bits(y), "{} swiglu, {rows} x {cols}, of a stored pre-activation", T::NAME);

    let dy = random::<T>(3, rows * cols);
    let old = random::<T>(4, 2 * cols);
    for accumulate in [false, true] {
        let both = on_any_threads(|pool| {
            let mut dx = pre.to_vec();
            let mut dbias = old.clone();
            bias_gated_backward(
                pool,
                Curve::Silu,
                Shape { rows, cols },
                &mut dx,
                &dy,
                with_bias.then_some(&mut dbias),
                accumulate,
            );
            [dx, dbias].concat()
        });
        let (dx, dbias) = both.split_at(x.len());
        let mut sums = if with_bias && !accumulate { vec![0.0; 2 * cols] } else { wide(&old) };
        wide(dx).iter().enumerate().filter(|_| with_bias).for_each(|(i, x)| sums[i % (2 * cols)] += x);
        assert_close("dbias", dbias, &sums);
        let exact = plain_gradient(&wide(pre), &wide(&dy));
        assert_close("dx", dx, &exact);
        // The loops themselves are held against differences.
        if T::NAME == "f64" && x.len() < 600 {
            assert_gradient("dx", &wide(pre), &exact, |pre| dot(&plain(pre), &wide(&dy)));
        }
    }
}

#[test]
fn swiglu_and_its_gradient_equal_loops_and_differences() {
    for (rows, cols) in SHAPES {
        for with_bias in [false, true] {
            check::<f32>(rows, cols, with_bias);
            check::<f64>(rows, cols, with_bias);
        }
    }
}

#[test]
fn swiglu_is_finite_and_accurate_far_from_zero() {
    for gate in [-1e4_f32, -100.0, -88.0, -30.0, -9.0, -1e-6, 0.0, 1e-6, 9.0, 30.0, 100.0, 1e4] {
        let mut pre = [gate, 3.0];
        let mut y = [0.0];
        bias_gated_forward(&Pool::new(1), Curve::Silu, Shape { rows: 1, cols: 1 }, &mut pre, None, &mut y);
        let expected = 3.0 * f64::from(gate) / (1.0 + (-f64::from(gate)).exp());
        assert!((f64::from(y[0]) - expected).abs() <= 1e-5 * expected.abs() + 1e-30, "{gate}: {} not {expected}", y[0]);
        bias_gated_backward(&Pool::new(1), Curve::Silu, Shape { rows: 1, cols: 1 }, &mut pre, &[1.0], None, false);
        let slope = pre[0] / 3.0;
        assert!(slope.is_finite() && (gate.abs() < 30.0 || (slope - f32::from(gate > 0.0)).abs() < 1e-6), "{gate}");
    }
}
