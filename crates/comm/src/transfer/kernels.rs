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

/// Combines `n` elements of every source, in order, and stores the result to every destination.
///
/// # Safety
/// Sources and destinations are valid for `n` elements; a destination may be a source, otherwise nothing overlaps.
pub(crate) unsafe fn reduce<T: Element>(
    reduction: Option<Reduction>,
    sources: &[*const T],
    destinations: &[*mut T],
    n: usize,
    stream: bool,
) {
    let add = |a: T, b: T| a + b;
    // Keeps a NaN on either side: no comparison with NaN holds, and NaN alone differs from itself.
    #[allow(clippy::eq_op)]
    let max = |a: T, b: T| if b > a || b != b { b } else { a };
    // SAFETY: the caller's.
    unsafe {
        match reduction {
            Some(Reduction::Max) => fold(sources, destinations, n, stream, max),
            Some(Reduction::Sum) | None => fold(sources, destinations, n, stream, add),
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
    combine: impl Fn(T, T) -> T,
) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512<T: Element>(s: &[*const T], d: &[*mut T], n: usize, stream: bool, f: impl Fn(T, T) -> T) {
            // SAFETY: the caller's.
            unsafe { fold_tiles(s, d, n, stream, f) }
        }
        #[target_feature(enable = "avx2")]
        unsafe fn avx2<T: Element>(s: &[*const T], d: &[*mut T], n: usize, stream: bool, f: impl Fn(T, T) -> T) {
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
    combine: impl Fn(T, T) -> T,
) {
    let mut results = [T::default(); TILE];
    for start in (0..n).step_by(TILE) {
        let results = &mut results[..TILE.min(n - start)];
        // SAFETY: the tile lies within the `n` elements; `results` is this function's own.
        unsafe {
            copy_nonoverlapping(sources[0].add(start), results.as_mut_ptr(), results.len());
            for source in &sources[1..] {
                let source = source.add(start);
                for (i, result) in results.iter_mut().enumerate() {
                    *result = combine(*result, *source.add(i));
                }
            }
            for destination in destinations {
                copy(results.as_ptr(), destination.add(start), results.len(), stream);
            }
        }
    }
}

/// Copies `n` elements.
///
/// # Safety
/// Both are valid for `n` elements and do not overlap.
#[inline(always)]
pub(super) unsafe fn copy<T: Element>(from: *const T, to: *mut T, n: usize, stream: bool) {
    #[cfg(target_arch = "x86_64")]
    if stream && to.cast::<Block>().is_aligned() {
        // SAFETY: the caller's, and the alignment was checked.
        return unsafe { copy_streaming(from.cast(), to.cast(), n * size_of::<T>()) };
    }
    // SAFETY: the caller's.
    unsafe { copy_nonoverlapping(from, to, n) }
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
    let (source, target, blocks) = (from.cast::<Block>(), to.cast::<Block>(), bytes / size_of::<Block>());
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
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction belongs to every x86-64 processor and touches no data.
    unsafe {
        _mm_sfence();
    }
}
