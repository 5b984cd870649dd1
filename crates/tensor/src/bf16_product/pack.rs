//! Packing of an operand: panels of some rows of A or columns of B, called lines here, as [pairs, lines], of each line
//! the two neighbours along k.

use crate::vector::transpose_rows;
use half::bf16;
use std::arch::x86_64::*;
use std::ops::Range;

/// Lines of a group that is packed at a time: the lanes of a vector of pairs.
const LANES: usize = 16;

/// A stored operand.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub values: &'a [bf16],
    /// Elements from one row to the next.
    pub stride: usize,
    /// Whether a row of the matrix is a line; else it has one number of every line.
    pub along_k: bool,
}

/// The panels of `WIDTH` lines, zero where there is no line or no second number of a pair: `to` from its start, of which
/// [`bf16`]s at each place in a line come in pairs.
pub(super) fn pack<'t, const WIDTH: usize>(
    from: Lines<'_>,
    lines: Range<usize>,
    part: Range<usize>,
    to: &'t mut [bf16],
) -> &'t [bf16] {
    let pairs = part.len().div_ceil(2);
    let panels = lines.len().div_ceil(WIDTH);
    let to = &mut to[..panels * pairs * WIDTH * 2];
    if pairs > 0 {
        let last = if from.along_k { (lines.end - 1, part.end) } else { (part.end - 1, lines.end) };
        assert!(last.0 * from.stride + last.1 <= from.values.len());
        // SAFETY: this module is used where the instructions are present; what is read lies within the lines and the
        // part, whose last element was checked, and what is written within the panels.
        unsafe {
            if from.along_k {
                pack_rows::<WIDTH>(from, lines, part, to.as_mut_ptr().cast());
            } else {
                pack_columns::<WIDTH>(from, lines, part, to.as_mut_ptr().cast());
            }
        }
    }
    to
}

/// Lanes `0..count` of a mask.
fn first_lanes(count: usize) -> u32 {
    if count >= 32 { u32::MAX } else { (1 << count) - 1 }
}

/// Of rows that are lines: squares of 16 lines and 16 pairs are transposed.
///
/// # Safety
/// As checked by [`pack`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack_rows<const WIDTH: usize>(from: Lines<'_>, lines: Range<usize>, part: Range<usize>, to: *mut u32) {
    let pairs = part.len().div_ceil(2);
    for (panel, first) in lines.clone().step_by(WIDTH).enumerate() {
        for lane in (0..WIDTH).step_by(LANES) {
            let width = LANES.min(WIDTH - lane);
            let count = width.min(lines.end.saturating_sub(first + lane));
            for pair in (0..pairs).step_by(LANES) {
                let numbers = first_lanes(part.len() - 2 * pair);
                let rows = LANES.min(pairs - pair);
                // SAFETY: `count` lines and the numbers of the mask are there to be read; the rows of the panel, to
                // `width` lanes, to be written.
                unsafe {
                    let start = from.values.as_ptr().wrapping_add((first + lane) * from.stride + part.start + 2 * pair);
                    let to = to.add((panel * pairs + pair) * WIDTH + lane);
                    let load = |line: usize| {
                        if line < count {
                            _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(numbers, start.add(line * from.stride).cast()))
                        } else {
                            _mm512_setzero_ps()
                        }
                    };
                    let mask = first_lanes(width) as u16;
                    transpose_rows::<f32, __m512>(load, |row, vector| {
                        if row < rows {
                            _mm512_mask_storeu_epi32(to.add(row * WIDTH).cast(), mask, _mm512_castps_si512(vector));
                        }
                    });
                }
            }
        }
    }
}

/// Of rows that have a number of every line: two rows become one of pairs.
///
/// # Safety
/// As checked by [`pack`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack_columns<const WIDTH: usize>(from: Lines<'_>, lines: Range<usize>, part: Range<usize>, to: *mut u32) {
    let pairs = part.len().div_ceil(2);
    for pair in 0..pairs {
        let row = part.start + 2 * pair;
        for (panel, first) in lines.clone().step_by(WIDTH).enumerate() {
            for lane in (0..WIDTH).step_by(LANES) {
                let width = LANES.min(WIDTH - lane);
                let count = width.min(lines.end.saturating_sub(first + lane));
                let there = first_lanes(count) as u16;
                let second = if row + 1 < part.end { count } else { 0 };
                // SAFETY: the masks select what is there to be read: of the second row nothing where it ends; the
                // panel's row, to `width` lanes, is there to be written.
                unsafe {
                    let start = from.values.as_ptr().wrapping_add(row * from.stride + first + lane);
                    let low = _mm256_maskz_loadu_epi16(there, start.cast());
                    let next = start.wrapping_add(from.stride);
                    let high = _mm256_maskz_loadu_epi16(first_lanes(second) as u16, next.cast());
                    let high = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(high));
                    let both = _mm512_or_si512(_mm512_cvtepu16_epi32(low), high);
                    let to = to.add((panel * pairs + pair) * WIDTH + lane);
                    _mm512_mask_storeu_epi32(to.cast(), first_lanes(width) as u16, both);
                }
            }
        }
    }
}
