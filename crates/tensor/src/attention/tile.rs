//! The one product that attention needs, on tiles that lie in cache, with the accumulators in
//! registers.
//!
//! Letters: C [m, n] += A B over k; m is a multiple of 4 and n of [`PAD`]: operands are padded.

use crate::dispatch::{Level, level};
use crate::element::Element;
use crate::vector::Vector;

/// Rows and columns of a full tile of scores.
pub(super) const TILE: usize = 64;
/// Padded sizes are multiples of this: the longest vector, and several blocks of rows.
pub(super) const PAD: usize = 16;
/// Rows of C in registers at a time.
const ROWS: usize = 4;

/// A matrix operand: where it starts, and its strides.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a, T> {
    values: &'a [T],
    /// Elements from one row to the next.
    row: usize,
    /// Elements from one column to the next.
    col: usize,
}

impl<'a, T> Operand<'a, T> {
    /// A matrix whose rows are contiguous, `stride` apart.
    pub(super) fn rows(values: &'a [T], stride: usize) -> Self {
        Operand { values, row: stride, col: 1 }
    }

    /// The transpose of such a matrix.
    pub(super) fn columns(values: &'a [T], stride: usize) -> Self {
        Operand { values, row: 1, col: stride }
    }
}

/// C [m, n] (row stride `c_row`) += A [m, k] B [k, n] (row stride `b_row`).
pub(super) fn product<T: Element>(
    (m, n, k): (usize, usize, usize),
    a: Operand<'_, T>,
    b: &[T],
    b_row: usize,
    c: &mut [T],
    c_row: usize,
) {
    if m * n * k == 0 {
        return;
    }
    assert!(m.is_multiple_of(ROWS) && n.is_multiple_of(PAD));
    assert!(a.values.len() > (m - 1) * a.row + (k - 1) * a.col);
    assert!(b.len() >= (k - 1) * b_row + n && c.len() >= (m - 1) * c_row + n);
    let job = Job { m, n, k, a, b, b_row, c: c.as_mut_ptr(), c_row };
    // SAFETY: the lengths were checked above; `level` names an instruction set that is present.
    unsafe {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512(&job),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2(&job),
            Level::Portable => columns::<T, [T; 4], 2>(&job),
        }
    }
}

struct Job<'a, T> {
    m: usize,
    n: usize,
    k: usize,
    a: Operand<'a, T>,
    b: &'a [T],
    b_row: usize,
    c: *mut T,
    c_row: usize,
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512<T: Element>(job: &Job<'_, T>) {
    // SAFETY: the caller's promise.
    unsafe { columns::<T, T::Wide, 4>(job) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<T: Element>(job: &Job<'_, T>) {
    // SAFETY: the caller's promise.
    unsafe { columns::<T, T::Half, 2>(job) }
}

/// All of C, `VECTORS` vectors of columns at a time, then one at a time.
///
/// # Safety
/// As checked by `product`, and V's instructions are present.
#[inline(always)]
unsafe fn columns<T: Element, V: Vector<T>, const VECTORS: usize>(job: &Job<'_, T>) {
    let mut col = 0;
    while col + VECTORS * V::LANES <= job.n {
        // SAFETY: the caller's promise; the columns lie in C.
        unsafe { rows::<T, V, VECTORS>(job, col) };
        col += VECTORS * V::LANES;
    }
    while col < job.n {
        // SAFETY: as above; n is a multiple of the lanes.
        unsafe { rows::<T, V, 1>(job, col) };
        col += V::LANES;
    }
}

/// # Safety
/// As `columns`; `VECTORS` vectors from `col` on lie in C.
#[inline(always)]
unsafe fn rows<T: Element, V: Vector<T>, const VECTORS: usize>(job: &Job<'_, T>, col: usize) {
    for row in (0..job.m).step_by(ROWS) {
        // SAFETY: all offsets lie in the operands, as `product` checked.
        unsafe {
            let c = job.c.add(row * job.c_row + col);
            let mut sums = [[V::splat(T::ZERO); VECTORS]; ROWS];
            for (i, sums) in sums.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(c.add(i * job.c_row + j * V::LANES));
                }
            }
            let mut a = job.a.values.as_ptr().add(row * job.a.row);
            let mut b = job.b.as_ptr().add(col);
            for _ in 0..job.k {
                let mut right = [V::splat(T::ZERO); VECTORS];
                for (j, right) in right.iter_mut().enumerate() {
                    *right = V::load(b.add(j * V::LANES));
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = V::splat(*a.add(i * job.a.row));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = left.mul_add(right, *sum);
                    }
                }
                a = a.wrapping_add(job.a.col);
                b = b.wrapping_add(job.b_row);
            }
            for (i, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    sum.store(c.add(i * job.c_row + j * V::LANES));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(run: impl Fn(&Job<'_, T>)) {
        let m = 8;
        let n = 5 * PAD;
        let k = 3;
        let a: Vec<T> = (0..m * k).map(|i| T::from_f64((i % 7) as f64 - 3.0)).collect();
        let b: Vec<T> = (0..k * n).map(|i| T::from_f64((i % 11) as f64 - 5.0)).collect();
        for a_by_columns in [false, true] {
            let a = if a_by_columns { Operand::columns(&a, m) } else { Operand::rows(&a, k) };
            let mut c = vec![T::ONE; m * n];
            run(&Job { m, n, k, a, b: &b, b_row: n, c: c.as_mut_ptr(), c_row: n });
            for i in 0..m * n {
                let terms = (0..k).map(|l| a.values[i / n * a.row + l * a.col] * b[l * n + i % n]);
                assert_eq!(c[i], terms.fold(T::ONE, |sum, x| sum + x));
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_product() {
        // SAFETY: the job's lengths fit its matrices; each set is used where it is present.
        unsafe {
            check::<f32>(|job| columns::<_, [f32; 4], 2>(job));
            check::<f64>(|job| columns::<_, [f64; 4], 2>(job));
            #[cfg(target_arch = "x86_64")]
            if level() != Level::Portable {
                check::<f32>(|job| avx2(job));
                check::<f64>(|job| avx2(job));
            }
            #[cfg(target_arch = "x86_64")]
            if level() == Level::Avx512 {
                check::<f32>(|job| avx512(job));
                check::<f64>(|job| avx512(job));
            }
        }
    }
}
