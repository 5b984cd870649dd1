//! Fixed-width vectors, for loops whose operands must stay in registers: the tile products of
//! attention, and transpositions.

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

    /// Exchanges the lanes of `self` that have bit `STEP` in their number with those of `other`
    /// that have not: one step of a transposition.
    ///
    /// # Safety
    /// The processor has the vector's instructions.
    unsafe fn exchange<const STEP: usize>(self, other: Self) -> (Self, Self);
}

/// Transposes a square of `LANES` x `LANES` elements, in registers.
///
/// # Safety
/// `LANES` rows of `LANES` elements can be read at `from`, `from_row` apart, and written at `to`,
/// `to_row` apart; the processor has the vector's instructions.
#[inline(always)]
pub(crate) unsafe fn transpose<T: Element, V: Vector<T>>(from: *const T, from_row: usize, to: *mut T, to_row: usize) {
    // SAFETY: the caller's promise.
    unsafe { transpose_rows(|i| V::load(from.add(i * from_row)), |i, row| row.store(to.add(i * to_row))) }
}

/// [`transpose`] of the rows that `load` gives to those that `store` takes.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
pub(crate) unsafe fn transpose_rows<T: Element, V: Vector<T>>(load: impl Fn(usize) -> V, store: impl Fn(usize, V)) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut rows = [V::splat(T::ZERO); WIDEST];
        for (i, row) in rows.iter_mut().enumerate().take(V::LANES) {
            *row = load(i);
        }
        stage::<T, V, 8>(&mut rows);
        stage::<T, V, 4>(&mut rows);
        stage::<T, V, 2>(&mut rows);
        stage::<T, V, 1>(&mut rows);
        for (i, row) in rows.iter().enumerate().take(V::LANES) {
            store(i, *row);
        }
    }
}

/// The most lanes of any vector.
pub(crate) const WIDEST: usize = 16;

/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn stage<T: Element, V: Vector<T>, const STEP: usize>(rows: &mut [V; WIDEST]) {
    for pair in 0..if STEP < V::LANES { V::LANES / 2 } else { 0 } {
        let i = pair / STEP * 2 * STEP + pair % STEP;
        // SAFETY: the caller's promise.
        (rows[i], rows[i + STEP]) = unsafe { rows[i].exchange::<STEP>(rows[i + STEP]) };
    }
}

/// [`Vector::exchange`] on the vectors' lanes.
#[inline(always)]
fn exchange_lanes<T: Copy, const LANES: usize, const STEP: usize>(
    a: [T; LANES],
    b: [T; LANES],
) -> ([T; LANES], [T; LANES]) {
    let low = std::array::from_fn(|i| if i & STEP == 0 { a[i] } else { b[i - STEP] });
    let high = std::array::from_fn(|i| if i & STEP == 0 { a[i + STEP] } else { b[i] });
    (low, high)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Vector, exchange_lanes};
    use std::arch::x86_64::*;
    use std::mem::transmute;

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

                #[inline(always)]
                unsafe fn exchange<const STEP: usize>(self, other: Self) -> (Self, Self) {
                    type Lanes = [$element; $lanes];
                    // SAFETY: vectors and arrays of their lanes have the same bits.
                    unsafe {
                        let a = transmute::<Self, Lanes>(self);
                        let b = transmute::<Self, Lanes>(other);
                        let (low, high) = exchange_lanes::<$element, $lanes, STEP>(a, b);
                        (transmute::<Lanes, Self>(low), transmute::<Lanes, Self>(high))
                    }
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

    #[inline(always)]
    unsafe fn exchange<const STEP: usize>(self, other: Self) -> (Self, Self) {
        exchange_lanes::<T, 4, STEP>(self, other)
    }
}
