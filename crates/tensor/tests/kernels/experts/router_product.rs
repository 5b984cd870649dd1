use crate::stored::{check, kernel};
use crate::support::{assert_close, on_any_threads, random, wide};
use quadrille_tensor::*;

fn equals_loops<T: Element>(rows: usize, cols: usize, experts: usize) {
    let shape = RouterShape { rows, experts, per_token: 1 };
    let x = random::<T>(1, rows * cols);
    let w = random::<T>(2, cols * experts);
    let dl = random::<T>(3, rows * experts);
    let old = random::<T>(4, cols * experts);
    let wide_x = wide(&x);
    let wide_w = wide(&w);
    let wide_dl = wide(&dl);
    let mut logits = vec![0.0; dl.len()];
    let mut dx = vec![0.0; x.len()];
    let mut dw = vec![0.0; w.len()];
    for row in 0..rows {
        for col in 0..cols {
            for e in 0..experts {
                logits[row * experts + e] += wide_x[row * cols + col] * wide_w[col * experts + e];
                dx[row * cols + col] += wide_dl[row * experts + e] * wide_w[col * experts + e];
                dw[col * experts + e] += wide_x[row * cols + col] * wide_dl[row * experts + e];
            }
        }
    }
    let what = format!("{rows} x {cols} x {experts}");
    let run = |old: &[T], kernel: &dyn Fn(&Pool, &mut [T])| {
        on_any_threads(|pool| {
            let mut y = old.to_vec();
            kernel(pool, &mut y);
            y
        })
    };
    let nan = |len: usize| vec![T::from_f64(f64::NAN); len];
    assert_close(&what, &run(&nan(dl.len()), &|pool, y| router_forward(pool, shape, cols, &x, &w, y)), &logits);
    assert_close(&what, &run(&nan(x.len()), &|pool, y| router_input_gradient(pool, shape, cols, &dl, &w, y)), &dx);
    let gradient = |accumulate: bool| {
        move |pool: &Pool, y: &mut [T]| router_weight_gradient(pool, shape, cols, &x, &dl, y, accumulate)
    };
    assert_close(&what, &run(&nan(w.len()), &gradient.clone()(false)), &dw);
    let added: Vec<f64> = dw.iter().zip(wide(&old)).map(|(dw, old)| dw + old).collect();
    assert_close(&what, &run(&old, &gradient(true)), &added);
}

#[test]
fn products_of_a_router_equal_loops() {
    let sizes =
        [(0, 3, 2), (3, 0, 2), (1, 1, 1), (63, 64, 8), (64, 65, 3), (65, 200, 64), (513, 130, 17), (1025, 33, 2)];
    for (rows, cols, experts) in sizes {
        equals_loops::<f32>(rows, cols, experts);
        equals_loops::<f64>(rows, cols, experts);
    }
}

kernel! { Router(pool, rows, cols) stored [x: rows * cols, dx: rows * cols]
    real [w: 6 * cols, logits: 6 * rows, dlogits: 6 * rows, dw: 6 * cols] {
    let shape = RouterShape { rows, experts: 6, per_token: 2 };
    router_forward(pool, shape, cols, x, w, logits);
    router_input_gradient(pool, shape, cols, dlogits, w, dx);
    router_weight_gradient(pool, shape, cols, x, dlogits, dw, true);
} }

#[test]
fn products_of_a_router_are_rounded_once() {
    check(Router);
}
