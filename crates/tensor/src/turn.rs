//! Transposition of a block of a matrix that fits in cache.

use crate::dispatch::{Level, level, vectorised};
use crate::element::Element;
use crate::stored::{Stored, same, same_mut, widen_all};
use crate::vector::{Vector, WIDEST, transpose};

/// to [cols, rows] (row stride `to_row`) = transposed x [rows, cols] (row stride `x_row`), bit for bit.
pub(crate) fn turn<S: Stored>(rows: usize, cols: usize, x: &[S], x_row: usize, to: &mut [S], to_row: usize) {
    if let Some(x) = same::<S, S::Real>(x) {
        let to = same_mut::<S, S::Real>(to).expect("both are of one type");
        return turn_real(rows, cols, x, x_row, to, to_row);
    }
    for row in 0..rows {
        let to = to[row..].iter_mut().step_by(to_row);
        to.zip(&x[row * x_row..row * x_row + cols]).for_each(|(to, x)| *to = *x);
    }
}

/// Rows and columns that are widened at a time before they are transposed.
const BLOCK: (usize, usize) = (WIDEST, 64);

/// [`turn`] of what is stored to what is computed in.
pub(crate) fn turn_widened<S: Stored>(
    rows: usize,
    cols: usize,
    x: &[S],
    x_row: usize,
    to: &mut [S::Real],
    to_row: usize,
) {
    if let Some(x) = same::<S, S::Real>(x) {
        return turn_real(rows, cols, x, x_row, to, to_row);
    }
    let mut block = [S::Real::ZERO; BLOCK.0 * BLOCK.1];
    for top in (0..rows).step_by(BLOCK.0) {
        for left in (0..cols).step_by(BLOCK.1) {
            let rows = BLOCK.0.min(rows - top);
            let cols = BLOCK.1.min(cols - left);
            vectorised(
                #[inline(always)]
                || {
                    for (row, block) in block.chunks_exact_mut(BLOCK.1).enumerate().take(rows) {
                        let start = (top + row) * x_row + left;
                        widen_all(&mut block[..cols], &x[start..start + cols]);
                    }
                },
            );
            turn_real(rows, cols, &block, BLOCK.1, &mut to[left * to_row + top..], to_row);
        }
    }
}

fn turn_real<T: Element>(rows: usize, cols: usize, x: &[T], x_row: usize, to: &mut [T], to_row: usize) {
    if rows * cols == 0 {
        return;
    }
    assert!(x.len() >= (rows - 1) * x_row + cols && to.len() >= (cols - 1) * to_row + rows);
    let whole_rows = rows / WIDEST * WIDEST;
    let whole_cols = cols / WIDEST * WIDEST;
    let from = x.as_ptr();
    let onto = to.as_mut_ptr();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(rows: usize, cols: usize, run: impl Fn(*const T, usize, *mut T, usize)) {
        let x_row = cols + 3;
        let to_row = rows + 5;
        let x: Vec<T> = (0..rows * x_row).map(|i| T::from_f64(i as f64)).collect();
        let mut to = vec![T::ZERO; cols * to_row];
        run(x.as_ptr(), x_row, to.as_mut_ptr(), to_row);
        for (i, value) in to.iter().enumerate() {
            let col = i / to_row;
            let row = i % to_row;
            assert_eq!(*value, if row < rows { x[row * x_row + col] } else { T::ZERO }, "row {row} column {col}");
        }
    }

    fn on_every_instruction_set<T: Element>(rows: usize, cols: usize) {
        // SAFETY: `check` has the room; each set is used where it is present.
        unsafe {
            check::<T>(rows, cols, |x, x_row, to, to_row| squares::<T, [T; 4]>(rows, cols, x, x_row, to, to_row));
            #[cfg(target_arch = "x86_64")]
            if level() != Level::Portable {
                check::<T>(rows, cols, |x, x_row, to, to_row| avx2(rows, cols, x, x_row, to, to_row));
            }
            #[cfg(target_arch = "x86_64")]
            if level() == Level::Avx512 {
                check::<T>(rows, cols, |x, x_row, to, to_row| avx512(rows, cols, x, x_row, to, to_row));
            }
        }
    }

    #[test]
    fn every_instruction_set_transposes_whole_squares() {
        on_every_instruction_set::<f32>(32, 48);
        on_every_instruction_set::<f64>(16, 32);
    }

    /// Every element is where it belongs, and nothing else is written.
    fn whole<T: Element>(rows: usize, cols: usize) {
        let x_row = cols + 3;
        let to_row = rows + 5;
        let x: Vec<T> = (0..rows * x_row).map(|i| T::from_f64(1.0 + i as f64)).collect();
        let mut to = vec![T::ZERO; cols * to_row];
        turn(rows, cols, &x, x_row, &mut to, to_row);
        for (i, value) in to.iter().enumerate() {
            let col = i / to_row;
            let row = i % to_row;
            assert_eq!(*value, if row < rows { x[row * x_row + col] } else { T::ZERO }, "row {row} column {col}");
        }
    }

    #[test]
    fn sizes_around_whole_squares_are_transposed_whole() {
        let sides = [1, WIDEST - 1, WIDEST, WIDEST + 1, 2 * WIDEST, 2 * WIDEST + 5];
        for (rows, cols) in sides.into_iter().flat_map(|rows| sides.map(|cols| (rows, cols))).chain([(0, 3), (3, 0)]) {
            whole::<f32>(rows, cols);
            whole::<f64>(rows, cols);
        }
    }
}
