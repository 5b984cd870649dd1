//! Kernels of rows and of flat arrays on values stored in 16 bits.

use crate::stored::{bits, check, kernel, numbers};
use half::{bf16, f16};
use quadrille_tensor::*;

const EPS: f64 = 1e-5;

kernel! { Arrays(pool, rows, cols) stored [x: rows * cols, y: rows * cols, z: rows * cols, w: rows * cols] real [r: rows * cols] {
    copy(pool, z, x);
    add_assign(pool, y, x);
    add_assign(pool, w, r);
    add_assign(pool, r, x);
} }

kernel! { Bias(pool, rows, cols) stored [x: rows * cols, dy: rows * cols] real [bias: cols, dbias: cols] {
    bias_forward(pool, Shape { rows, cols }, x, bias);
    bias_backward(pool, Shape { rows, cols }, dy, dbias, rows.is_multiple_of(2));
} }

kernel! { Curves(pool, rows, cols) stored [pre: rows * cols, y: 5 * rows * cols, dy: 5 * rows * cols] real [] {
    for (i, curve) in [Curve::Gelu, Curve::GeluErf, Curve::Silu, Curve::Relu, Curve::Relu2].into_iter().enumerate() {
        let at = i * rows * cols..(i + 1) * rows * cols;
        let shape = Shape { rows, cols };
        bias_curve_forward(pool, curve, shape, pre, None, &mut y[at.clone()]);
        bias_curve_backward(pool, curve, shape, pre, &mut dy[at], None, false);
    }
} }

kernel! { Gated(pool, rows, cols) stored [pre: 2 * rows * cols, y: rows * cols, dy: rows * cols] real [] {
    bias_gated_forward(pool, Curve::Silu, Shape { rows, cols }, pre, None, y);
    bias_gated_backward(pool, Curve::Silu, Shape { rows, cols }, pre, dy, None, false);
} }

kernel! { Residual(pool, rows, cols) stored [x: rows * cols, residual: rows * cols, y: 4 * rows * cols] real [bias: cols] {
    let keep = |row: usize, col: usize| (row * 7 + col * 13) % 5 != 2;
    for i in 0..4 {
        let y = &mut y[i * rows * cols..(i + 1) * rows * cols];
        let bias = (i % 2 == 0).then_some(&bias[..]);
        residual_forward(pool, Shape { rows, cols }, y, bias, residual, (i < 2).then_some((1.25, &keep as _)));
    }
    dropout(pool, Shape { rows, cols }, x, 1.25, keep);
} }

kernel! { Norm(pool, rows, cols) stored [x: rows * cols, y: rows * cols, dy: rows * cols, dx: rows * cols, added: rows * cols]
    real [sums: rows, squares: rows, gamma: cols, beta: cols, out: 2 * rows, dgamma: cols, dbeta: cols] {
    let shape = NormShape { rows, cols, width: cols.max(1), eps: EPS };
    norm_row_sums(pool, Shape { rows, cols }, x, sums);
    norm_centered_squares(pool, shape, x, sums, squares);
    norm_forward(pool, shape, x, sums, squares, gamma, beta, y);
    norm_backward_sums(pool, shape, x, sums, squares, gamma, dy, out, dgamma, dbeta, true);
    norm_backward(pool, shape, x, sums, squares, gamma, dy, out, dx, false);
    norm_backward(pool, shape, x, sums, squares, gamma, dy, out, added, true);
} }

kernel! { RmsNorm(pool, rows, cols) stored [x: rows * cols, y: rows * cols, dy: rows * cols, dx: rows * cols, added: rows * cols]
    real [squares: rows, gamma: cols, out: rows, dgamma: cols] {
    let shape = NormShape { rows, cols, width: cols.max(1), eps: EPS };
    rms_norm_squares(pool, Shape { rows, cols }, x, squares);
    rms_norm_forward(pool, shape, x, squares, gamma, y);
    rms_norm_backward_sums(pool, shape, x, squares, gamma, dy, out, dgamma, false);
    rms_norm_backward(pool, shape, x, squares, gamma, dy, out, dx, false);
    rms_norm_backward(pool, shape, x, squares, gamma, dy, out, added, true);
} }

kernel! { Heads(pool, rows, cols) stored [x: rows * 4 * cols, normed: rows * 4 * cols, dy: rows * 4 * cols, turned: rows * 4 * cols]
    real [gamma: cols, beta: cols, dgamma: cols, dbeta: cols] {
    let norm = HeadNorm { groups: 1, heads: 2, head_dim: cols, value_dim: cols, keys: rows.is_multiple_of(2), centered: rows.is_multiple_of(3), eps: EPS };
    let centered = norm.centered;
    head_norm_forward(pool, norm, gamma, centered.then_some(&beta[..]), normed);
    head_norm_backward(pool, norm, x, gamma, dy, dgamma, centered.then_some(&mut dbeta[..]), true);
    let rotary = Rotary::new(cols, &vec![0.7; cols / 2], 0..rows);
    rotate(pool, GroupShape { rows, groups: 1, heads: 2, head_dim: cols, value_dim: cols }, &rotary, |row| row, turned, rows.is_multiple_of(2));
} }

kernel! { Embedding(pool, rows, cols) stored [table: 9 * cols, y: rows * cols, x: rows * cols, dy: rows * cols, narrow: 9 * cols, places: 9 * cols]
    real [dtable: 9 * cols, dplaces: 9 * cols] {
    let tokens: Vec<u32> = (0..rows as u32).map(|i| i * i % 13).collect();
    let shape = TableShape { rows, cols, start: 2 };
    embed_forward(pool, shape, &tokens, table, y);
    add_positions(pool, Shape { rows, cols }, x, table, |row| row % 7);
    embed_backward(pool, shape, &tokens, dy, dtable, true);
    embed_backward(pool, shape, &tokens, dy, narrow, true);
    positions_backward(pool, Shape { rows, cols }, dy, dplaces, |row| row % 7, false);
    positions_backward(pool, Shape { rows, cols }, dy, places, |row| row % 7, false);
} }

kernel! { CrossEntropy(pool, rows, cols) stored [x: rows * cols] real [max: rows, sums: 2 * rows, loss: 1] {
    let shape = LogitsShape { rows, cols, valid: cols - cols / 5, start: 3 };
    let targets: Vec<u32> = (0..rows as u32).map(|i| if i % 5 == 4 { IGNORED } else { i * 7 % 40 }).collect();
    cross_entropy_max(pool, shape, x, max);
    cross_entropy_sums(pool, shape, x, max, &targets, sums);
    loss[0] = cross_entropy_gradient(pool, shape, x, max, sums, &targets, 0.01, None) as f32;
} }

kernel! { Capped(pool, rows, cols) stored [x: rows * cols, y: rows * cols] real [max: rows, sums: 2 * rows] {
    let shape = LogitsShape { rows, cols, valid: cols - cols / 5, start: 3 };
    let targets: Vec<u32> = (0..rows as u32).map(|i| i * 7 % 40).collect();
    cap(pool, y, 1.5);
    cross_entropy_max(pool, shape, x, max);
    cross_entropy_sums(pool, shape, x, max, &targets, sums);
    cross_entropy_gradient(pool, shape, x, max, sums, &targets, 0.01, Some(10.0));
} }

kernel! { SquaredError(pool, rows, cols) stored [x: rows * cols, y: rows * cols] real [loss: 3] {
    let targets: Vec<f64> = (0..rows * cols).map(|i| (i as f64).sin()).collect();
    rounded(pool, &targets, y);
    loss[2] = sum_of_squares(pool, x) as f32;
    loss[0] = squared_error_loss(pool, x, &targets) as f32;
    loss[1] = squared_error(pool, x, &targets, 0.01) as f32;
} }

kernel! { Columns(pool, rows, cols) stored [x: rows * 3 * cols, y: rows * 3 * cols, z: rows * 3 * cols, slice: rows * cols] real [] {
    let shape = Shape { rows, cols: 3 * cols };
    pack_columns(pool, shape, 3, x, y);
    unpack_columns(pool, shape, 3, x, z);
    slice_columns(pool, shape, 1, 3, x, slice);
    store_panel_columns(pool, PanelShape { rows, cols: 3 * cols, first: cols, count: cols }, slice, z);
} }

macro_rules! rounds_once {
    ($($test:ident: $kernel:expr;)*) => {
        $(#[test]
        fn $test() {
            check($kernel);
        })*
    };
}

rounds_once! {
    arrays_are_rounded_once: Arrays;
    biases_are_rounded_once: Bias;
    curves_are_rounded_once: Curves;
    gates_are_rounded_once: Gated;
    residuals_are_rounded_once: Residual;
    layer_norms_are_rounded_once: Norm;
    rms_norms_are_rounded_once: RmsNorm;
    norms_of_heads_and_rotations_are_rounded_once: Heads;
    embeddings_are_rounded_once: Embedding;
    cross_entropies_are_rounded_once: CrossEntropy;
    caps_are_rounded_once: Capped;
    squared_errors_are_rounded_once: SquaredError;
    columns_are_moved_as_they_are: Columns;
}

/// With a bias the fused kernels give what those give that they are fused of: all work on what was stored.
fn check_fused<S: Stored<Real = f32>>(rows: usize, cols: usize) {
    let pool = &Pool::new(2);
    let shape = Shape { rows, cols };
    let x: Vec<S> = numbers(1, rows * cols);
    let dy: Vec<S> = numbers(2, rows * cols);
    let bias: Vec<f32> = numbers(3, cols);
    let mut pre = x.clone();
    let mut y = x.clone();
    bias_curve_forward(pool, Curve::Gelu, shape, &mut pre, Some(&bias), &mut y);
    let mut biased = x.clone();
    let mut activated = x;
    bias_forward(pool, shape, &mut biased, &bias);
    activate_curve(pool, Curve::Gelu, &biased, &mut activated);
    assert_eq!((bits(&pre), bits(&y)), (bits(&biased), bits(&activated)));

    let mut dx = dy.clone();
    let mut dbias = bias.clone();
    bias_curve_backward(pool, Curve::Gelu, shape, &pre, &mut dx, Some(&mut dbias), true);
    let mut alone = dy;
    let mut sums = bias;
    bias_curve_backward(pool, Curve::Gelu, shape, &pre, &mut alone, None, true);
    bias_backward(pool, shape, &alone, &mut sums, true);
    assert_eq!((bits(&dx), bits(&dbias)), (bits(&alone), bits(&sums)));
}

/// The same of gates.
fn check_fused_gates<S: Stored<Real = f32>>(rows: usize, cols: usize) {
    let pool = &Pool::new(2);
    let shape = Shape { rows, cols };
    let wide = Shape { rows, cols: 2 * cols };
    let x: Vec<S> = numbers(1, rows * 2 * cols);
    let dy: Vec<S> = numbers(2, rows * cols);
    let bias: Vec<f32> = numbers(3, 2 * cols);
    let mut pre = x.clone();
    let mut y = dy.clone();
    bias_gated_forward(pool, Curve::Silu, shape, &mut pre, Some(&bias), &mut y);
    let mut biased = x;
    let mut activated = dy.clone();
    bias_forward(pool, wide, &mut biased, &bias);
    activate_gated(pool, Curve::Silu, &biased, &mut activated);
    assert_eq!((bits(&pre), bits(&y)), (bits(&biased), bits(&activated)));

    let mut dx = pre.clone();
    let mut dbias = bias.clone();
    bias_gated_backward(pool, Curve::Silu, shape, &mut dx, &dy, Some(&mut dbias), true);
    let mut alone = pre;
    let mut sums = bias;
    bias_gated_backward(pool, Curve::Silu, shape, &mut alone, &dy, None, true);
    bias_backward(pool, wide, &alone, &mut sums, true);
    assert_eq!((bits(&dx), bits(&dbias)), (bits(&alone), bits(&sums)));
}

#[test]
fn fused_biases_are_those_of_the_separate_kernels() {
    for (rows, cols) in [(0, 5), (1, 1), (3, 7), (17, 33), (129, 511)] {
        check_fused::<bf16>(rows, cols);
        check_fused::<f16>(rows, cols);
        check_fused_gates::<bf16>(rows, cols);
        check_fused_gates::<f16>(rows, cols);
    }
}

/// The master's bits are those of the update without one, from the widened gradient, and the stored values are the
/// master's, rounded.
fn check_update<S: Stored<Real = f32>, G: Stored<Real = f32>>(len: usize) {
    let constants = AdamW {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        correction1: 0.1,
        correction2: 0.05,
    };
    let mut master: Vec<f32> = numbers(1, len);
    let g: Vec<G> = numbers(2, len);
    let mut m = vec![0.0_f32; len];
    let mut v = vec![0.0_f32; len];
    let mut p = master.clone();
    let mut mean = m.clone();
    let mut square = v.clone();
    let mut stored = vec![S::ZERO; len];
    for step in 0..3 {
        adamw_master(&Pool::new(1 + step), &constants, 0.5, &mut master, &mut stored, &g, &mut m, &mut v);
        adamw(&Pool::new(1), &constants, 0.5, &mut p, &crate::stored::widened(&g), &mut mean, &mut square);
        assert_eq!((bits(&master), bits(&m), bits(&v)), (bits(&p), bits(&mean), bits(&square)));
        crate::stored::assert_rounded("weights", &stored, &master);
    }
}

#[test]
fn stored_weights_are_their_rounded_masters_after_every_update() {
    for len in [0, 1, 63, 64, 1000, 32_769, 70_001] {
        check_update::<bf16, bf16>(len);
        check_update::<bf16, f32>(len);
        check_update::<f16, f16>(len);
        check_update::<f16, f32>(len);
        check_update::<f32, bf16>(len);
    }
}
