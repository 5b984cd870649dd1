//! Fixed-width vectors for the tile products of attention, where the accumulators must stay in
//! registers.

use crate::element::Element;

/// A vector register of `T`.
pub trait Vector<T>: Copy {
    /// Elements in the vector.
    const LANES: usize;

    /// # Safety
    /// `LANES` elements can be read at `from`; the processor has the vector's instructions.
    unsafe fn load(from: *const T) -> Self;

    /// # Safety
    /// `LANES` elements can be written at `to`; the processor has the vector's instructions.
    unsafe fn store(self, to: *mut T);

    /// # Safety
    /// The processor has the vector's instructions.
    unsafe fn splat(x: T) -> Self;

    /// `self * b + c`.
    ///
    /// # Safety
    /// The processor has the vector's instructions.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    macro_rules! vector {
        ($vector:ty, $element:ty, $lanes:literal, $load:ident, $store:ident, $splat:ident, $fma:ident) => {
            impl Vector<$element> for $vector {
                const LANES: usize = $lanes;

                #[inline(always)]
                unsafe fn load(from: *const $element) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $load(from) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut $element) {
                    // SAFETY: the caller's promise.
                    unsafe { $store(to, self) }
                }

                #[inline(always)]
                unsafe fn splat(x: $element) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $splat(x) }
                }

                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $fma(self, b, c) }
                }
            }
        };
    }

    vector!(__m512, f32, 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps);
    vector!(__m512d, f64, 8, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_fmadd_pd);
    vector!(__m256, f32, 8, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps);
    vector!(__m256d, f64, 4, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd);
}

impl<T: Element> Vector<T> for [T; 4] {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller's promise; an array has its element's alignment.
        unsafe { from.cast::<[T; 4]>().read() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller's promise; an array has its element's alignment.
        unsafe { to.cast::<[T; 4]>().write(self) }
    }

    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        std::array::from_fn(|i| self[i].mul_add(b[i], c[i]))
    }
}
