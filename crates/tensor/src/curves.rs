//! The functions of a perceptron, element by element.
//!
//! GELU in its tanh form, 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), is
//! x sigmoid(2u): one exponential, and no cancellation for negative x.

use crate::element::Element;

/// 2 sqrt(2/pi).
const SLOPE: f64 = 1.595_769_121_605_730_8;
/// The cubic term's weight.
const CUBIC: f64 = 0.044_715;

/// A function of one number.
pub(crate) trait Function {
    /// Its value.
    fn value<T: Element>(x: T) -> T;

    /// Its value and its derivative.
    fn slope<T: Element>(x: T) -> (T, T);
}

/// Which function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Curve {
    /// GELU in its tanh form.
    Gelu,
    /// x sigmoid(x).
    Silu,
    /// max(x, 0).
    Relu,
    /// max(x, 0)^2.
    Relu2,
}

/// Calls a function that is generic over the type of a curve.
macro_rules! with_curve {
    ($curve:expr, $function:ident, $call:expr) => {
        match $curve {
            Curve::Gelu => {
                type $function = crate::curves::Gelu;
                $call
            }
            Curve::Silu => {
                type $function = crate::curves::Silu;
                $call
            }
            Curve::Relu => {
                type $function = crate::curves::Relu;
                $call
            }
            Curve::Relu2 => {
                type $function = crate::curves::Relu2;
                $call
            }
        }
    };
}
pub(crate) use with_curve;

pub(crate) struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn value<T: Element>(x: T) -> T {
        x / (T::ONE + exp_minus_2u(x))
    }

    #[inline(always)]
    fn slope<T: Element>(x: T) -> (T, T) {
        let (slope, cubic) = (T::from_f64(SLOPE), T::from_f64(3.0 * SLOPE * CUBIC));
        let e = exp_minus_2u(x);
        let sigmoid = T::ONE / (T::ONE + e);
        let inner = cubic.mul_add(x * x, slope);
        // 1 - sigmoid = e sigmoid, without cancellation.
        (x * sigmoid, (x * inner * (e * sigmoid)).mul_add(sigmoid, sigmoid))
    }
}

pub(crate) struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn value<T: Element>(x: T) -> T {
        x / (T::ONE + exp_minus(x))
    }

    #[inline(always)]
    fn slope<T: Element>(x: T) -> (T, T) {
        let e = exp_minus(x);
        let sigmoid = T::ONE / (T::ONE + e);
        // 1 - sigmoid = e sigmoid, without cancellation.
        (x * sigmoid, (x * (e * sigmoid)).mul_add(sigmoid, sigmoid))
    }
}

pub(crate) struct Relu;

impl Function for Relu {
    #[inline(always)]
    fn value<T: Element>(x: T) -> T {
        if x > T::ZERO { x } else { T::ZERO }
    }

    #[inline(always)]
    fn slope<T: Element>(x: T) -> (T, T) {
        if x > T::ZERO { (x, T::ONE) } else { (T::ZERO, T::ZERO) }
    }
}

pub(crate) struct Relu2;

impl Function for Relu2 {
    #[inline(always)]
    fn value<T: Element>(x: T) -> T {
        if x > T::ZERO { x * x } else { T::ZERO }
    }

    #[inline(always)]
    fn slope<T: Element>(x: T) -> (T, T) {
        if x > T::ZERO { (x * x, x + x) } else { (T::ZERO, T::ZERO) }
    }
}

/// e^(-2u), of which sigmoid(2u) = 1 / (1 + e^(-2u)); cut off where the sigmoid is 1e-35, so that
/// it stays finite.
#[inline(always)]
fn exp_minus_2u<T: Element>(x: T) -> T {
    let z = x * T::from_f64(-SLOPE * CUBIC).mul_add(x * x, T::from_f64(-SLOPE));
    let limit = T::from_f64(80.0);
    (if z > limit { limit } else { z }).exp()
}

/// e^(-x), cut off where the sigmoid is 1e-35, so that it stays finite.
#[inline(always)]
fn exp_minus<T: Element>(x: T) -> T {
    let limit = T::from_f64(80.0);
    (if -x > limit { limit } else { -x }).exp()
}
