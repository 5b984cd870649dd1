//! The kernels that are measured, on operands of their own.

use quadrille_tensor::{
    AdamW, AttentionShape, Buffer, ContextPart, Curve, Pool, ProductShape, Shape, Stored, Transpose, adamw,
    attention_backward, attention_forward, bias_curve_backward, bias_curve_forward, matmul, residual_forward,
};

use super::cases::Sweep;

/// A product of shape `[m, n, k]`.
pub fn product<S: Stored>(pool: &Pool, layout: Transpose, [m, n, k]: [usize; 3]) -> impl FnMut() + '_ {
    let (a, b, mut c) =
        (Buffer::<S>::without_pattern(m * k), Buffer::<S>::without_pattern(k * n), Buffer::<S>::new(m * n));
    move || matmul(pool, ProductShape { stored: layout, m, n, k }, &a, &b, &mut c, false)
}

/// Causal attention of one sequence: `[sequence, width of a head, heads]`, forward or backward.
pub fn attention(pool: &Pool, backward: bool, [seq_len, head_dim, heads]: [usize; 3]) -> impl FnMut() + '_ {
    let context = ContextPart::WHOLE;
    let shape = AttentionShape {
        sequences: 1,
        seq_len,
        context,
        heads,
        kv_heads: heads,
        head_dim,
        value_dim: head_dim,
        causal: true,
        window: None,
        scale: 1.0,
        cap: None,
    };
    let outputs = seq_len * heads * head_dim;
    let (qkv, dout) = (Buffer::<f32>::without_pattern(3 * outputs), Buffer::<f32>::without_pattern(outputs));
    let (mut out, mut log_sum_exp) = (Buffer::<f32>::new(outputs), Buffer::<f32>::new(seq_len * heads));
    let mut dqkv = Buffer::<f32>::new(3 * outputs);
    attention_forward(pool, shape, &qkv, None, &mut out, &mut log_sum_exp, None);
    move || {
        if backward {
            attention_backward(pool, shape, &qkv, None, &out, &log_sum_exp, &dout, &mut dqkv, None);
        } else {
            attention_forward(pool, shape, &qkv, None, &mut out, &mut log_sum_exp, None);
        }
    }
}

/// Element-wise work on so many elements, in rows of 64.
pub fn sweep(pool: &Pool, sweep: Sweep, elements: usize) -> impl FnMut() + '_ {
    let cols = 64;
    let rows = elements / cols;
    // GELU's slope is 1 there, so that repeating its gradient in place keeps its size; so does adding nothing.
    let mut x = Buffer::<f32>::from_fn(elements, |_| 10.0);
    let mut y = Buffer::<f32>::from_fn(elements, |_| 0.0);
    let states = if sweep == Sweep::AdamW { elements } else { 0 };
    let (mut m, mut v) = (Buffer::<f32>::without_pattern(states), Buffer::<f32>::from_fn(states, |_| 1.0));
    let bias = Buffer::<f32>::from_fn(cols, |_| 0.0);
    move || match sweep {
        Sweep::Residual => residual_forward(pool, Shape { rows, cols }, &mut x, None, &y, None),
        Sweep::AdamW => adamw(pool, &CONSTANTS, 1.0, &mut x, &y, &mut m, &mut v),
        Sweep::BiasGelu => bias_curve_forward(pool, Curve::Gelu, Shape { rows, cols }, &mut x, Some(&bias), &mut y),
        Sweep::GeluBackward => bias_curve_backward(pool, Curve::Gelu, Shape { rows, cols }, &x, &mut y, None, false),
    }
}

/// No state grows, and none becomes so small that arithmetic slows down: nothing decays.
const CONSTANTS: AdamW = AdamW {
    learning_rate: 1e-3,
    beta1: 1.0,
    beta2: 1.0,
    epsilon: 1e-8,
    weight_decay: 0.0,
    correction1: 1.0,
    correction2: 1.0,
};
