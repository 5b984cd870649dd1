//! The loops over elements: combining buffers and copying them.
//!
//! `n` elements; `stream`: store past the caches, for results too large to stay in them anyway.

use std::mem::size_of;
use std::ptr::copy_nonoverlapping;

use crate::element::{Element, Reduction};

/// Elements that are combined at a time: the results stay in registers and the first-level cache until stored, and
/// all sources advance together, which suits the prefetchers. Sizes from 64 to 1024 rate alike for 2 and 4 sources,
/// within the noise of a shared machine.
const TILE: usize = 128;

/// Combines `n` elements of every source, in order, and stores the result to every destination; returns how many elements
/// it has stored.
///
/// # Safety
/// Sources and destinations are valid for `n` elements; a destination may be a source, otherwise nothing overlaps.
pub(crate) unsafe fn reduce<T: Element>(
    reduction: Reduction,
    sources: &[*const T],
    destinations: &[*mut T],
    n: usize,
    stream: bool,
) -> usize {
    let add = |a: T::Wide, b: T::Wide| a + b;
    // Keeps a NaN on either side: no comparison with NaN holds, and NaN alone differs from itself.
    #[allow(clippy::eq_op)]
    let max = |a: T::Wide, b: T::Wide| if b > a || b != b { b } else { a };
    // SAFETY: the caller's.
    unsafe {
        match reduction {
            Reduction::Max => fold(sources, destinations, n, stream, max),
            Reduction::Sum => fold(sources, destinations, n, stream, add),
        }
    }
}

/// Chooses the widest vectors that the processor has; elements are independent, so no bit depends on the choice.
///
/// # Safety
/// As [`reduce`].
unsafe fn fold<T: Element>(
    sources: &[*const T],
    destinations: &[*mut T],
    n: usize,
    stream: bool,
    combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512<T: Element>(
            s: &[*const T],
            d: &[*mut T],
            n: usize,
            stream: bool,
            f: impl Fn(T::Wide, T::Wide) -> T::Wide,
        ) -> usize {
            // SAFETY: the caller's.
            unsafe { fold_tiles(s, d, n, stream, f) }
        }
        #[target_feature(enable = "avx2")]
        unsafe fn avx2<T: Element>(
            s: &[*const T],
            d: &[*mut T],
            n: usize,
            stream: bool,
            f: impl Fn(T::Wide, T::Wide) -> T::Wide,
        ) -> usize {
            // SAFETY: the caller's.
            unsafe { fold_tiles(s, d, n, stream, f) }
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was detected; the rest is the caller's.
            return unsafe { avx512(sources, destinations, n, stream, combine) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(sources, destinations, n, stream, combine) };
        }
    }
    // SAFETY: the caller's.
    unsafe { fold_tiles(sources, destinations, n, stream, combine) }
}

/// The loop itself, compiled once for each instruction set.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
unsafe fn fold_tiles<T: Element>(
    sources: &[*const T],
    destinations: &[*mut T],
    n: usize,
    stream: bool,
    combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
) -> usize {
    let mut results = [T::Wide::default(); TILE];
    let mut room = [T::default(); TILE];
    let mut stored = 0;
    for start in (0..n).step_by(TILE) {
        let results = &mut results[..TILE.min(n - start)];
        // SAFETY: the tile lies within the `n` elements; `results` is this function's own.
        unsafe {
            let first = sources[0].add(start);
            for (i, result) in results.iter_mut().enumerate() {
                *result = (*first.add(i)).wide();
            }
            for source in &sources[1..] {
                let source = source.add(start);
                for (i, result) in results.iter_mut().enumerate() {
                    *result = combine(*result, (*source.add(i)).wide());
                }
            }
            let results = T::all_rounded(results, &mut room);
            for destination in destinations {
                stored += copy(results.as_ptr(), destination.add(start), results.len(), stream);
            }
        }
    }
    stored
}

/// Copies `n` elements; returns how many.
///
/// # Safety
/// Both are valid for `n` elements and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy<T: Copy>(from: *const T, to: *mut T, n: usize, stream: bool) -> usize {
    #[cfg(target_arch = "x86_64")]
    if stream && to.cast::<Block>().is_aligned() {
        // SAFETY: the caller's, and the alignment was checked.
        unsafe { copy_streaming(from.cast(), to.cast(), n * size_of::<T>()) };
        return n;
    }
    // SAFETY: the caller's.
    unsafe { copy_nonoverlapping(from, to, n) };
    n
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i as Block, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

/// Copies with stores that go to memory directly instead of reading the destination's lines first. They are weakly
/// ordered: [`fence`] before others may read.
///
/// # Safety
/// As [`copy`]; `to` is aligned to blocks.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_streaming(from: *const u8, to: *mut u8, bytes: usize) {
    let source = from.cast::<Block>();
    let target = to.cast::<Block>();
    let blocks = bytes / size_of::<Block>();
    // SAFETY: blocks and rest lie within the bytes; loads need no alignment, stores have it.
    unsafe {
        for i in 0..blocks {
            _mm_stream_si128(target.add(i), _mm_loadu_si128(source.add(i)));
        }
        let done = blocks * size_of::<Block>();
        copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
    }
}

/// Orders streamed stores before the lock that tells the others that the work is done.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction belongs to every x86-64 processor and touches no data.
    unsafe {
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a streamed block; a destination that lies elsewhere is not streamed to.
    const BLOCK: usize = 16;

    fn number<T: From<u8>>(seed: usize, i: usize) -> T {
        T::from(((seed * 17 + i) % 61) as u8)
    }

    fn numbers<T: From<u8>>(seed: usize, n: usize) -> Vec<T> {
        (0..n).map(|i| number(seed, i)).collect()
    }

    /// Where none of the numbers above may be written over.
    fn guard<T: From<u8>>() -> T {
        T::from(255)
    }

    /// None and one, and both sides of a block, of a tile and of several of each.
    fn lengths<T>() -> impl Iterator<Item = usize> {
        let block = BLOCK / size_of::<T>();
        let whole = [1, block, 2 * block, TILE, 2 * TILE, 5 * TILE + block];
        whole.into_iter().flat_map(|whole| whole - 1..=whole + 1)
    }

    /// Every alignment of a destination, streamed to and not, is written from its first to its last element and nowhere else.
    fn everywhere<T: Element + From<u8> + std::fmt::Debug>(
        expected: impl Fn(usize) -> T,
        write: impl Fn(*mut T, usize, bool) -> usize,
    ) {
        for (n, first, stream) in lengths::<T>().flat_map(|n| {
            let starts = 0..=BLOCK / size_of::<T>();
            starts.flat_map(move |first| [(n, first, false), (n, first, true)])
        }) {
            let mut to = vec![guard::<T>(); first + n + BLOCK];
            // Nothing of the vector is used while the kernel writes.
            let written = write(to.as_mut_ptr().wrapping_add(first), n, stream);
            fence();
            let what = format!("{n} elements of {} bytes from element {first}, streamed {stream}", size_of::<T>());
            assert_eq!(written, n, "{what}");
            for (i, found) in to.iter().enumerate() {
                let inside = i.checked_sub(first).filter(|i| *i < n);
                assert_eq!(*found, inside.map_or(guard(), &expected), "{what}: element {i} of the buffer");
            }
        }
    }

    fn check_copy<T: Element + From<u8> + std::fmt::Debug>() {
        let from = numbers::<T>(1, 6 * TILE);
        // SAFETY: the source is longer than any length, and `everywhere` has the room.
        everywhere(|i| from[i], |to, n, stream| unsafe { copy(from.as_ptr(), to, n, stream) });
    }

    fn check_reduce<T: Element + From<u8> + std::fmt::Debug>() {
        for sources in 1..=4 {
            let from: Vec<Vec<T>> = (0..sources).map(|seed| numbers(seed, 6 * TILE)).collect();
            let addresses: Vec<*const T> = from.iter().map(Vec::as_ptr).collect();
            let sum = |a: T::Wide, b: T::Wide| a + b;
            let most = |a: T::Wide, b: T::Wide| if b > a { b } else { a };
            for (how, combine) in [(Reduction::Sum, sum as fn(_, _) -> T::Wide), (Reduction::Max, most)] {
                let expected = |i: usize| T::rounded(from.iter().map(|from| from[i].wide()).reduce(combine).unwrap());
                // SAFETY: as in `check_copy`; the second destination is as long as what it is asked to hold.
                everywhere(expected, |to, n, stream| unsafe {
                    let mut second = vec![guard::<T>(); n];
                    let stored = reduce(how, &addresses, &[to, second.as_mut_ptr()], n, stream);
                    fence();
                    assert!((0..n).all(|i| second[i] == expected(i)), "{sources} sources, {n} elements, second result");
                    stored / 2
                });
            }
        }
    }

    #[test]
    fn copies_of_every_length_and_alignment_are_whole() {
        check_copy::<f32>();
        check_copy::<f64>();
        check_copy::<half::bf16>();
    }

    #[test]
    fn reductions_of_every_length_and_alignment_are_whole() {
        check_reduce::<f32>();
        check_reduce::<f64>();
        check_reduce::<half::bf16>();
    }

    /// In 8 bits 256 + 1 is 256 again, and so it is after another 1; in f16 2048 + 1 is 2048.
    #[test]
    fn sums_of_sixteen_bits_are_rounded_once() {
        fn sum<T: Element + std::fmt::Debug>(numbers: [f32; 3], expected: f32, from_f32: impl Fn(f32) -> T) {
            let numbers = numbers.map(|number| [from_f32(number)]);
            let sources = numbers.each_ref().map(|number| number.as_ptr());
            let mut out = [T::default()];
            // SAFETY: an element at each address.
            unsafe { reduce(Reduction::Sum, &sources, &[out.as_mut_ptr()], 1, false) };
            assert!(out[0] == from_f32(expected), "{:?}", out[0]);
        }
        sum([256.0, 1.0, 1.0], 258.0, half::bf16::from_f32);
        sum([2048.0, 1.0, 1.0], 2050.0, half::f16::from_f32);
    }
}
