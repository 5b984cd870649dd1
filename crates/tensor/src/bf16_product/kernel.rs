//! The micro-kernel: a tile of C in registers, to which a pair of each of its rows and columns is added at a time.

use crate::pool::Disjoint;
use crate::stored::Stored;
use half::bf16;
use std::arch::x86_64::*;

/// Rows of a tile.
pub(super) const ROWS: usize = 14;
/// Vectors of a row of a tile: with those of B and one of A they fill the 32 registers.
const VECTORS: usize = 2;
/// Columns of a tile.
pub(super) const COLS: usize = 16 * VECTORS;

/// Where the product of packed panels goes.
pub(super) struct Tile<'a, C> {
    /// Pairs along k.
    pub pairs: usize,
    pub rows: usize,
    pub cols: usize,
    pub c: &'a Disjoint<'a, C>,
    pub c_first: usize,
    pub c_row: usize,
    /// Sums of earlier pairs [rows, cols], if there are several passes.
    pub sums: &'a Disjoint<'a, f32>,
    pub sums_first: usize,
    /// Whether there are no earlier pairs.
    pub begins: bool,
    /// Whether there are no later pairs.
    pub ends: bool,
    /// Whether the product is added to C.
    pub accumulate: bool,
}

/// Multiplies panels of `ROWS` rows of A with panels of `COLS` columns of B; the caller alone has the tile's elements.
pub(super) fn multiply<C: Stored<Real = f32>>(tile: &Tile<'_, C>, a: &[bf16], b: &[bf16]) {
    assert!(a.len() >= tile.rows.next_multiple_of(ROWS) * tile.pairs * 2);
    assert!(b.len() >= tile.cols.next_multiple_of(COLS) * tile.pairs * 2);
    // SAFETY: this module is used where the instructions are present; the lengths were checked.
    unsafe { panels(tile, a.as_ptr().cast(), b.as_ptr().cast()) }
}

/// # Safety
/// The processor has the instructions, and the panels have the tile's rows, columns and pairs.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512bf16")]
unsafe fn panels<C: Stored<Real = f32>>(tile: &Tile<'_, C>, a: *const u32, b: *const u32) {
    let mut sums = [0.0; ROWS * COLS];
    for col in (0..tile.cols).step_by(COLS) {
        for row in (0..tile.rows).step_by(ROWS) {
            // SAFETY: panels follow one another, each of all pairs.
            unsafe { sum(tile.pairs, a.add(row * tile.pairs), b.add(col * tile.pairs), &mut sums) };
            let cols = COLS.min(tile.cols - col);
            for (i, sums) in sums.chunks_exact(COLS).enumerate().take(tile.rows - row) {
                store(tile, row + i, col, &sums[..cols]);
            }
        }
    }
}

/// sums [ROWS, COLS] = the products of a panel of A [pairs, ROWS] and of B [pairs, COLS].
///
/// # Safety
/// The processor has the instructions, and both panels can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512bf16")]
unsafe fn sum(pairs: usize, a: *const u32, b: *const u32, sums: &mut [f32; ROWS * COLS]) {
    let mut tile = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    for pair in 0..pairs {
        // SAFETY: the caller's promise; pairs and vectors of them are plain bits.
        unsafe {
            let a = a.add(pair * ROWS);
            let b = b.add(pair * COLS);
            let mut right = [_mm512_setzero_si512(); VECTORS];
            for (j, right) in right.iter_mut().enumerate() {
                *right = _mm512_loadu_si512(b.add(j * 16).cast());
            }
            for (i, tile) in tile.iter_mut().enumerate() {
                let left = _mm512_set1_epi32(a.add(i).read() as i32);
                for (tile, right) in tile.iter_mut().zip(right) {
                    *tile = _mm512_dpbf16_ps(*tile, as_bf16(left), as_bf16(right));
                }
            }
        }
    }
    for (sums, tile) in sums.chunks_exact_mut(16).zip(tile.as_flattened()) {
        // SAFETY: 16 elements.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), *tile) };
    }
}

#[inline(always)]
fn as_bf16(x: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(x) }
}

/// Part of a row of C, or of the sums so far.
#[inline(always)]
fn store<C: Stored<Real = f32>>(tile: &Tile<'_, C>, row: usize, col: usize, sums: &[f32]) {
    if tile.begins && tile.ends {
        return finish(tile, row, col, sums.iter().copied());
    }
    let first = tile.sums_first + row * tile.cols + col;
    // SAFETY: the caller alone has the tile's elements.
    let before = unsafe { tile.sums.part(first, sums.len()) };
    if tile.ends {
        finish(tile, row, col, before.iter().zip(sums).map(|(before, sum)| before + sum));
    } else if tile.begins {
        before.copy_from_slice(sums);
    } else {
        before.iter_mut().zip(sums).for_each(|(before, sum)| *before += sum);
    }
}

/// Part of a row of C from its sums, rounded once.
#[inline(always)]
fn finish<C: Stored<Real = f32>>(tile: &Tile<'_, C>, row: usize, col: usize, sums: impl ExactSizeIterator<Item = f32>) {
    // SAFETY: the caller alone has the tile's elements.
    let c = unsafe { tile.c.part(tile.c_first + row * tile.c_row + col, sums.len()) };
    if tile.accumulate {
        c.iter_mut().zip(sums).for_each(|(c, sum)| *c = C::rounded(c.widen() + sum));
    } else {
        c.iter_mut().zip(sums).for_each(|(c, sum)| *c = C::rounded(sum));
    }
}
