//! The types that values are stored in: the element types themselves, and `bf16` and `f16`, which are computed with in
//! `f32`.
//!
//! Conversions are free of branches and of calls, so that loops over them vectorise.

use crate::buffer::Buffer;
use crate::element::Element;
use half::{bf16, f16};
use std::any::TypeId;
use std::cell::RefCell;
use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
}

/// A type that values are stored in. Kernels widen what they load, compute in [`Stored::Real`] and round once where they
/// store.
pub trait Stored: sealed::Sealed + Copy + Send + Sync + Default + Debug + PartialEq + 'static {
    /// The type that kernels compute in: `f32` of 16-bit types, else the type itself.
    type Real: Element;

    /// 0.
    const ZERO: Self;
    /// The type's name: `f32`, `f64`, `bf16` or `f16`.
    const NAME: &'static str;

    /// This value, exactly.
    fn widen(self) -> Self::Real;

    /// The value nearest to `x`, of two equally near ones the even one; infinite beyond the largest, and what is not a
    /// number stays none.
    fn rounded(x: Self::Real) -> Self;

    /// Lends this thread's scratch, `len` elements with unspecified contents, which grows when
    /// needed and is kept from call to call, apart for each depth of calls within calls.
    #[doc(hidden)]
    fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [Self]) -> R) -> R;
}

macro_rules! stored {
    ($type:ident, $real:ident, $zero:expr, $widen:expr, $rounded:expr) => {
        impl Stored for $type {
            type Real = $real;

            const ZERO: Self = $zero;
            const NAME: &'static str = stringify!($type);

            #[inline(always)]
            fn widen(self) -> $real {
                $widen(self)
            }

            #[inline(always)]
            fn rounded(x: $real) -> Self {
                $rounded(x)
            }

            fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [Self]) -> R) -> R {
                thread_local! {
                    static SCRATCH: RefCell<Vec<Buffer<$type>>> = const { RefCell::new(Vec::new()) };
                }
                let kept = SCRATCH.with_borrow_mut(Vec::pop).filter(|buffer| buffer.len() >= len);
                let mut buffer = kept.unwrap_or_else(|| Buffer::new(len));
                let result = body(&mut buffer[..len]);
                SCRATCH.with_borrow_mut(|kept| kept.push(buffer));
                result
            }
        }
    };
}

stored!(f32, f32, 0.0, std::convert::identity, std::convert::identity);
stored!(f64, f64, 0.0, std::convert::identity, std::convert::identity);
stored!(bf16, f32, bf16::ZERO, widen_bf16, round_bf16);
stored!(f16, f32, f16::ZERO, widen_f16, round_f16);

#[inline(always)]
fn widen_bf16(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

#[inline(always)]
fn round_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    // Half a unit, less a bit where the upper half is even: a tie goes to the even one.
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // The bit that is set keeps a payload of low bits from becoming infinity.
    let nan = bits >> 16 | 0x40;
    bf16::from_bits((if x.is_nan() { nan } else { nearest }) as u16)
}

/// The exponent's distance between `f32` and `f16`.
const REBIAS: u32 = 127 - 15;

#[inline(always)]
fn widen_f16(x: f16) -> f32 {
    const INFINITE: u32 = 0x1f << 23;
    // 2^-14, the smallest normal `f16`.
    const SMALLEST: u32 = (REBIAS + 1) << 23;
    let bits = u32::from(x.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    let exponent = magnitude & INFINITE;
    let normal = magnitude + (REBIAS << 23);
    let infinite = magnitude | 0x7f80_0000;
    // The digits behind an implied 1, which is then taken off.
    let subnormal = (f32::from_bits(magnitude + SMALLEST) - f32::from_bits(SMALLEST)).to_bits();
    let finite = if exponent == 0 { subnormal } else { normal };
    f32::from_bits((if exponent == INFINITE { infinite } else { finite }) | (bits & 0x8000) << 16)
}

#[inline(always)]
fn round_f16(x: f32) -> f16 {
    // 2^16, from where on everything is infinite.
    const BEYOND: u32 = (127 + 16) << 23;
    // 2^-14, the smallest normal `f16`.
    const SMALLEST: u32 = (REBIAS + 1) << 23;
    // 1/2: the unit in its last place is the smallest subnormal `f16`, so that adding it rounds to one.
    const SHIFT: u32 = 126 << 23;
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let even = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(REBIAS << 23).wrapping_add(0xfff + even) >> 13;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(SHIFT)).to_bits().wrapping_sub(SHIFT);
    let finite = if magnitude < SMALLEST { subnormal } else { normal };
    let beyond = if x.is_nan() { 0x7e00 | magnitude >> 13 & 0x3ff } else { 0x7c00 };
    f16::from_bits(((if magnitude < BEYOND { finite } else { beyond }) | (bits >> 16 & 0x8000)) as u16)
}

/// The slice as it is, if A is B.
#[inline(always)]
pub(crate) fn same<A: Stored, B: Stored>(x: &[A]) -> Option<&[B]> {
    // SAFETY: the types are one.
    (TypeId::of::<A>() == TypeId::of::<B>()).then(|| unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len()) })
}

/// [`same`] of a slice to be written.
#[inline(always)]
pub(crate) fn same_mut<A: Stored, B: Stored>(x: &mut [A]) -> Option<&mut [B]> {
    let start = x.as_mut_ptr();
    let len = x.len();
    // SAFETY: the types are one, and the slice is borrowed as `x` is.
    (TypeId::of::<A>() == TypeId::of::<B>()).then(|| unsafe { std::slice::from_raw_parts_mut(start.cast(), len) })
}

/// y = x, rounded.
#[inline(always)]
pub(crate) fn round_all<S: Stored>(y: &mut [S], x: &[S::Real]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = S::rounded(*x));
}

/// y = x, exactly.
#[inline(always)]
pub(crate) fn widen_all<S: Stored>(y: &mut [S::Real], x: &[S]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = x.widen());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_grows_and_nests() {
        f32::with_scratch(10, |outer| {
            outer.fill(1.0);
            f32::with_scratch(20, |inner| inner.fill(2.0));
            assert!(outer.iter().all(|x| *x == 1.0));
        });
        let places = || f32::with_scratch(5, |outer| f32::with_scratch(5, |inner| (outer.as_ptr(), inner.as_ptr())));
        assert_eq!(places(), places(), "both are kept");
        bf16::with_scratch(30, |scratch| assert_eq!(scratch.len(), 30));
    }

    #[test]
    fn every_pattern_of_16_bits_is_widened_exactly_and_rounded_back() {
        for bits in 0..=u16::MAX {
            let brain = bf16::from_bits(bits);
            let half = f16::from_bits(bits);
            if brain.is_nan() {
                assert!(brain.widen().is_nan() && bf16::rounded(brain.widen()).is_nan(), "{bits:x}");
            } else {
                assert_eq!(brain.widen().to_bits(), brain.to_f32().to_bits(), "{bits:x}");
                assert_eq!(bf16::rounded(brain.widen()).to_bits(), bits);
            }
            if half.is_nan() {
                assert!(half.widen().is_nan() && f16::rounded(half.widen()).is_nan(), "{bits:x}");
            } else {
                assert_eq!(half.widen().to_bits(), half.to_f32().to_bits(), "{bits:x}");
                assert_eq!(f16::rounded(half.widen()).to_bits(), bits);
            }
        }
    }

    /// All patterns around every tie and every value of 16 bits, and many others.
    fn patterns() -> impl Iterator<Item = u32> {
        let ties = [0, 0x7fff, 0x8000, 0x8001, 0xffff];
        let halves = [0, 0xfff, 0x1000, 0x1001, 0x1fff];
        let bf16 = (0..=0xffff_u32).flat_map(move |upper| ties.map(|lower| upper << 16 | lower));
        let f16 = (0..1 << 19).flat_map(move |upper: u32| halves.map(|lower| upper << 13 | lower));
        // Ties between subnormal numbers of `f16` lie higher: 2^-25 times odd numbers, and their neighbours.
        let ties = (0..4096_u32).map(|i| (i as f32 * 2.0_f32.powi(-25)).to_bits());
        let around = ties.flat_map(|bits| [bits.wrapping_sub(1), bits, bits + 1]);
        let others = (0..4_000_000_u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ i >> 7);
        bf16.chain(f16).chain(around).chain(others)
    }

    /// The first pattern that `round` and `expected` round apart.
    fn difference(round: impl Fn(f32) -> u16, expected: impl Fn(f32) -> u16) -> Option<u32> {
        let numbers = patterns().filter(|bits| !f32::from_bits(*bits).is_nan());
        numbers.map(f32::from_bits).find(|x| round(*x) != expected(*x)).map(f32::to_bits)
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_and_ties_to_even() {
        assert_eq!(difference(|x| bf16::rounded(x).to_bits(), |x| bf16::from_f32(x).to_bits()), None);
        assert_eq!(difference(|x| f16::rounded(x).to_bits(), |x| f16::from_f32(x).to_bits()), None);
        for bits in patterns().filter(|bits| f32::from_bits(*bits).is_nan()) {
            let nan = f32::from_bits(bits);
            assert!(bf16::rounded(nan).is_nan() && f16::rounded(nan).is_nan(), "{bits:x}");
        }
    }

    #[test]
    fn other_roundings_are_told_apart() {
        let truncated = |x: f32| (x.to_bits() >> 16) as u16;
        let half_up = |x: f32| (x.to_bits().wrapping_add(0x8000) >> 16) as u16;
        assert!(difference(truncated, |x| bf16::from_f32(x).to_bits()).is_some());
        assert!(difference(half_up, |x| bf16::from_f32(x).to_bits()).is_some());
    }
}
