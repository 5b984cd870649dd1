//! The two element types, `f32` and `f64`, and the mathematics that their kernels share.

use crate::stored::Stored;
use crate::vector::Vector;
use gemm_common::Parallelism;
use std::fmt::Display;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// C = alpha C + beta A B, where C is read only if asked: sizes m, n, k; where C lies, the strides of its columns and of its
/// rows, and whether it is read; the same of A and of B; alpha, beta; which of the three is conjugated; threads.
#[doc(hidden)]
pub type LibraryProduct<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// A floating-point type that the kernels work on: `f32`, or `f64` for proofs.
pub trait Element:
    Stored<Real = Self>
    + Display
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// 1.
    const ONE: Self;
    /// Minus infinity, the logit of what must not be chosen.
    const NEG_INFINITY: Self;

    /// The 512-bit vector of this type.
    #[doc(hidden)]
    type Wide: Vector<Self>;
    /// The 256-bit vector of this type.
    #[doc(hidden)]
    type Half: Vector<Self>;

    /// The library's product of this type, as this processor computes it.
    #[doc(hidden)]
    fn library_product() -> LibraryProduct<Self>;

    /// The nearest value to `x`.
    fn from_f64(x: f64) -> Self;

    /// This value, exactly.
    fn to_f64(self) -> f64;

    /// `self * b + c`, rounded once.
    #[doc(hidden)]
    fn mul_add(self, b: Self, c: Self) -> Self;

    /// The square root.
    #[doc(hidden)]
    fn sqrt(self) -> Self;

    /// e^self; in `f32` within 2 units in the last place, 0 below the smallest normal number,
    /// saturating at e^88.37.
    #[doc(hidden)]
    fn exp(self) -> Self;

    /// The larger of the two (`self` if either is not a number).
    #[doc(hidden)]
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

macro_rules! element {
    ($type:ident, $wide:ty, $half:ty, $exp:expr, $product:expr) => {
        impl Element for $type {
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = $type::NEG_INFINITY;

            type Wide = $wide;
            type Half = $half;

            #[inline(always)]
            fn library_product() -> LibraryProduct<Self> {
                $product()
            }

            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn mul_add(self, b: Self, c: Self) -> Self {
                $type::mul_add(self, b, c)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod widths {
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};
    pub type F32x16 = __m512;
    pub type F32x8 = __m256;
    pub type F64x8 = __m512d;
    pub type F64x4 = __m256d;
}

#[cfg(not(target_arch = "x86_64"))]
mod widths {
    pub type F32x16 = [f32; 4];
    pub type F32x8 = [f32; 4];
    pub type F64x8 = [f64; 4];
    pub type F64x4 = [f64; 4];
}

element!(f32, widths::F32x16, widths::F32x8, exp_f32, gemm_f32::gemm::f32::get_gemm_fn);
element!(f64, widths::F64x8, widths::F64x4, f64::exp, gemm_f64::gemm::f64::get_gemm_fn);

/// e^x by the reduction x = n ln 2 + r and Cephes' polynomial in r (`expf`, Moshier), free of
/// branches and table look-ups so that loops over it vectorise.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    const LARGEST: f32 = 88.376_26;
    const SMALLEST: f32 = -87.336_54;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;

    let clamped = if x > LARGEST { LARGEST } else { x };
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, clamped));
    let p = 1.987_569_1e-4_f32
        .mul_add(r, 1.398_2e-3)
        .mul_add(r, 8.333_452e-3)
        .mul_add(r, 4.166_579_6e-2)
        .mul_add(r, 1.666_666_5e-1)
        .mul_add(r, 5e-1);
    let fraction = p.mul_add(r * r, r) + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x < SMALLEST { 0.0 } else { fraction * power }
}

#[cfg(test)]
mod tests {
    use super::exp_f32;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for i in -870_000..=880_000 {
            let x = i as f32 * 1e-4;
            let exact = f64::from(x).exp();
            let unit = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
            let error = (f64::from(exp_f32(x)) - exact).abs() / unit;
            assert!(error <= 2.0, "exp({x}) is {error} units off");
        }
    }

    #[test]
    fn exp_at_the_ends_of_its_range() {
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(-88.0), 0.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert!(exp_f32(f32::INFINITY) > 2e38);
        assert!(exp_f32(f32::NAN).is_nan());
        assert_eq!(f64::NEG_INFINITY.exp(), 0.0);
    }
}
