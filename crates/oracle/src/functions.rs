//! The functions of a perceptron beside GELU and SwiGLU, which have files of their own.

use crate::{gelu, swiglu};

/// A function of one number, and its derivative.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    value: fn(f64) -> f64,
    derivative: fn(f64) -> f64,
}

pub(crate) const SILU: Function = Function { value: swiglu::silu, derivative: swiglu::derivative };
pub(crate) const GELU: Function = Function { value: gelu::value, derivative: gelu::derivative };
pub(crate) const RELU: Function = Function { value: |x| x.max(0.0), derivative: |x| if x > 0.0 { 1.0 } else { 0.0 } };
pub(crate) const RELU2: Function = Function { value: |x| x.max(0.0).powi(2), derivative: |x| 2.0 * x.max(0.0) };

impl Function {
    /// `y[n, f]` from `x[n, f]`.
    pub(crate) fn forward(self, x: &[f64]) -> Vec<f64> {
        x.iter().map(|x| (self.value)(*x)).collect()
    }

    /// `dx` from `dy` and the forward's `x`.
    pub(crate) fn backward(self, dy: &[f64], x: &[f64]) -> Vec<f64> {
        dy.iter().zip(x).map(|(dy, x)| dy * (self.derivative)(*x)).collect()
    }

    /// `y[n, f]` from `x[n, 2f]`, whose columns are gate 0, up 0, gate 1, up 1, ...
    pub(crate) fn gated_forward(self, x: &[f64]) -> Vec<f64> {
        x.chunks(2).map(|pair| (self.value)(pair[0]) * pair[1]).collect()
    }

    /// `dx[n, 2f]` from `dy[n, f]` and the forward's `x`.
    pub(crate) fn gated_backward(self, dy: &[f64], x: &[f64]) -> Vec<f64> {
        let both = |(dy, pair): (&f64, &[f64])| [dy * pair[1] * (self.derivative)(pair[0]), dy * (self.value)(pair[0])];
        dy.iter().zip(x.chunks(2)).flat_map(both).collect()
    }
}
