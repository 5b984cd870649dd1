//! The functions of a perceptron, element by element.
//!
//! GELU in its tanh form, 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), is
//! x sigmoid(2u): one exponential, and no cancellation for negative x. By the error function it is x Phi(x), of which
//! Phi(-|x|) = erfc(|x| / sqrt 2) / 2 does not cancel: e^(-z^2) / (1 + 2 z) times a series in Chebyshev polynomials of
//! t = (z - 3) / (z + 3), z = |x| / sqrt 2, whose coefficients are those of erfc(z) e^(z^2) (1 + 2 z), computed with 50 digits.

use crate::element::Element;

/// 2 sqrt(2/pi).
const SLOPE: f64 = 1.595_769_121_605_730_8;
/// The cubic term's weight.
const CUBIC: f64 = 0.044_715;

/// Of erfc(z) e^(z^2) (1 + 2 z), by Chebyshev polynomials of (z - 3) / (z + 3).
const ERFC: [f64; 25] = [
    1.177_562_574_196_56,
    0.005_353_904_539_615_676,
    -0.093_775_503_422_842_09,
    0.054_366_525_557_443_22,
    -0.018_976_596_707_845_208,
    0.004_453_426_061_462_712,
    -0.000_633_553_171_055_314_7,
    1.766_171_952_317_159_3e-5,
    1.284_153_286_405_667_1e-5,
    -2.007_228_565_905_991_3e-6,
    -1.807_522_790_414_837e-7,
    7.549_828_343_825_093e-8,
    1.885_668_523_838_603e-9,
    -2.699_519_049_798_364e-9,
    -1.460_079_119_939_104_8e-11,
    1.036_160_744_596_949e-10,
    1.475_715_976_623_473e-12,
    -4.277_340_064_396_911e-12,
    -2.079_224_928_597_99e-13,
    1.813_450_200_317_696_3e-13,
    1.973_425_574_544_739e-14,
    -7.287_943_737_592_673e-15,
    -1.516_987_869_022_811_6e-15,
    2.351_411_225_878_140_3e-16,
    1.000_611_169_182_166_9e-16,
];
/// 1 / sqrt(2 pi).
const DENSITY: f64 = 0.398_942_280_401_432_7;

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
    /// GELU by the error function, x Phi(x).
    GeluErf,
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
            Curve::GeluErf => {
                type $function = crate::curves::GeluErf;
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
        let slope = T::from_f64(SLOPE);
        let cubic = T::from_f64(3.0 * SLOPE * CUBIC);
        let e = exp_minus_2u(x);
        let sigmoid = T::ONE / (T::ONE + e);
        let inner = cubic.mul_add(x * x, slope);
        // 1 - sigmoid = e sigmoid, without cancellation.
        (x * sigmoid, (x * inner * (e * sigmoid)).mul_add(sigmoid, sigmoid))
    }
}

pub(crate) struct GeluErf;

impl Function for GeluErf {
    #[inline(always)]
    fn value<T: Element>(x: T) -> T {
        x * normal(x).0
    }

    #[inline(always)]
    fn slope<T: Element>(x: T) -> (T, T) {
        let (part, density) = normal(x);
        (x * part, x.mul_add(density, part))
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

/// The normal distribution: the part of it below x, and its density.
#[inline(always)]
fn normal<T: Element>(x: T) -> (T, T) {
    let half = T::from_f64(0.5);
    let size = if x > T::ZERO { x } else { -x };
    let z = size * T::from_f64(std::f64::consts::FRAC_1_SQRT_2);
    let fall = (-(half * x * x)).exp();
    let t = (z - T::from_f64(3.0)) / (z + T::from_f64(3.0));
    // Clenshaw's recurrence.
    let mut last = T::ZERO;
    let mut before = T::ZERO;
    for coefficient in ERFC[1..].iter().rev() {
        (last, before) = ((t + t).mul_add(last, T::from_f64(*coefficient) - before), last);
    }
    let series = t.mul_add(last, T::from_f64(ERFC[0]) - before);
    let tail = half * fall * series / (T::ONE + z + z);
    (if x > T::ZERO { T::ONE - tail } else { tail }, T::from_f64(DENSITY) * fall)
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
