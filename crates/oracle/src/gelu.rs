//! GELU in GPT-2's tanh form: `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

const SLOPE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2; // sqrt(2 / pi)
const CUBIC: f64 = 0.044715;

/// GELU of every element.
pub(crate) fn forward(x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| value(x)).collect()
}

/// GELU of a number.
pub(crate) fn value(x: f64) -> f64 {
    0.5 * x * (1.0 + (SLOPE * (x + CUBIC * x.powi(3))).tanh())
}

/// Of [`value`].
pub(crate) fn derivative(x: f64) -> f64 {
    let tanh = (SLOPE * (x + CUBIC * x.powi(3))).tanh();
    0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh.powi(2)) * SLOPE * (1.0 + 3.0 * CUBIC * x.powi(2))
}

/// `dx` from `dy` and the forward's `x`.
pub(crate) fn backward(dy: &[f64], x: &[f64]) -> Vec<f64> {
    dy.iter().zip(x).map(|(dy, &x)| dy * derivative(x)).collect()
}
