//! Transposition of a block of a matrix that fits in cache.

use crate::dispatch::{Level, level};
use crate::element::Element;
use crate::vector::{Vector, WIDEST, transpose};

/// to [cols, rows] (row stride `to_row`) = transposed x [rows, cols] (row stride `x_row`).
pub(crate) fn turn<T: Element>(rows: usize, cols: usize, x: &[T], x_row: usize, to: &mut [T], to_row: usize) {
    if rows * cols == 0 {
        return;
    }
    assert!(x.len() >= (rows - 1) * x_row + cols && to.len() >= (cols - 1) * to_row + rows);
    let (whole_rows, whole_cols) = (rows / WIDEST * WIDEST, cols / WIDEST * WIDEST);
    let (from, onto) = (x.as_ptr(), to.as_mut_ptr());
    // SAFETY: the lengths were checked; `level` names an instruction set that is present.
    unsafe {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512(whole_rows, whole_cols, from, x_row, onto, to_row),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2(whole_rows, whole_cols, from, x_row, onto, to_row),
            Level::Portable => squares::<T, [T; 4]>(whole_rows, whole_cols, from, x_row, onto, to_row),
        }
    }
    for row in 0..rows {
        for col in if row < whole_rows { whole_cols } else { 0 }..cols {
            to[col * to_row + row] = x[row * x_row + col];
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512<T: Element>(rows: usize, cols: usize, x: *const T, x_row: usize, to: *mut T, to_row: usize) {
    // SAFETY: the caller's promise.
    unsafe { squares::<T, T::Wide>(rows, cols, x, x_row, to, to_row) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<T: Element>(rows: usize, cols: usize, x: *const T, x_row: usize, to: *mut T, to_row: usize) {
    // SAFETY: the caller's promise.
    unsafe { squares::<T, T::Half>(rows, cols, x, x_row, to, to_row) }
}

/// # Safety
/// `rows` and `cols` are multiples of the lanes, both matrices have the room, and the processor
/// has the vector's instructions.
#[inline(always)]
unsafe fn squares<T: Element, V: Vector<T>>(
    rows: usize,
    cols: usize,
    x: *const T,
    x_row: usize,
    to: *mut T,
    to_row: usize,
) {
    for row in (0..rows).step_by(V::LANES) {
        for col in (0..cols).step_by(V::LANES) {
            // SAFETY: the caller's promise.
            unsafe { transpose::<T, V>(x.add(row * x_row + col), x_row, to.add(col * to_row + row), to_row) };
        }
    }
}
