//! The functions of a perceptron; GELU, the normal distribution that its exact form weighs with, and SwiGLU have files of their own.

use quadrille_spec::Activation;

use crate::{gelu, normal, swiglu};

/// A function of one number, and its derivative.
#[derive(Clone, Copy)]
struct Function {
    value: fn(f64) -> f64,
    derivative: fn(f64) -> f64,
}

const SILU: Function = Function { value: swiglu::silu, derivative: swiglu::derivative };
const GELU: Function = Function { value: gelu::value, derivative: gelu::derivative };
const GELU_ERF: Function =
    Function { value: |x| x * normal::below(x), derivative: |x| normal::below(x) + x * normal::density(x) };
const RELU: Function = Function { value: |x| x.max(0.0), derivative: |x| if x > 0.0 { 1.0 } else { 0.0 } };
const RELU2: Function = Function { value: |x| x.max(0.0).powi(2), derivative: |x| 2.0 * x.max(0.0) };

/// `y[n, f]` from the perceptron's first product, `up[n, f]` or, gated, `up[n, 2f]`.
pub(crate) fn activate(activation: Activation, up: &[f64]) -> Vec<f64> {
    match activation {
        Activation::Gelu => gelu::forward(up),
        Activation::Swiglu => swiglu::forward(up),
        Activation::GeluErf => GELU_ERF.forward(up),
        Activation::Silu => SILU.forward(up),
        Activation::Relu => RELU.forward(up),
        Activation::Relu2 => RELU2.forward(up),
        Activation::Geglu => GELU.gated_forward(up),
        Activation::Reglu => RELU.gated_forward(up),
    }
}

/// The gradient of `up`.
pub(crate) fn activate_backward(activation: Activation, dy: &[f64], up: &[f64]) -> Vec<f64> {
    match activation {
        Activation::Gelu => gelu::backward(dy, up),
        Activation::Swiglu => swiglu::backward(dy, up),
        Activation::GeluErf => GELU_ERF.backward(dy, up),
        Activation::Silu => SILU.backward(dy, up),
        Activation::Relu => RELU.backward(dy, up),
        Activation::Relu2 => RELU2.backward(dy, up),
        Activation::Geglu => GELU.gated_backward(dy, up),
        Activation::Reglu => RELU.gated_backward(dy, up),
    }
}

impl Function {
    /// `y[n, f]` from `x[n, f]`.
    fn forward(self, x: &[f64]) -> Vec<f64> {
        x.iter().map(|x| (self.value)(*x)).collect()
    }

    /// `dx` from `dy` and the forward's `x`.
    fn backward(self, dy: &[f64], x: &[f64]) -> Vec<f64> {
        dy.iter().zip(x).map(|(dy, x)| dy * (self.derivative)(*x)).collect()
    }

    /// `y[n, f]` from `x[n, 2f]`, whose columns are gate 0, up 0, gate 1, up 1, ...
    fn gated_forward(self, x: &[f64]) -> Vec<f64> {
        x.chunks(2).map(|pair| (self.value)(pair[0]) * pair[1]).collect()
    }

    /// `dx[n, 2f]` from `dy[n, f]` and the forward's `x`.
    fn gated_backward(self, dy: &[f64], x: &[f64]) -> Vec<f64> {
        let both = |(dy, pair): (&f64, &[f64])| [dy * pair[1] * (self.derivative)(pair[0]), dy * (self.value)(pair[0])];
        dy.iter().zip(x.chunks(2)).flat_map(both).collect()
    }
}
