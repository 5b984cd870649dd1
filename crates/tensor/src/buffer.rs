//! Owned, aligned memory whose pages are present before the first kernel runs.

use crate::element::Element;
use crate::stored::Stored;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment in bytes: a cache line, and an AVX-512 register.
const ALIGNMENT: usize = 64;
/// The size of a huge page in bytes.
const HUGE_PAGE: usize = 2 << 20;
/// From this size in bytes on, a buffer asks for huge pages.
const HUGE_FROM: usize = 4 << 20;

/// `len` elements in one allocation, aligned to 64 bytes; from 4 MiB on aligned to 2 MiB and,
/// on Linux, advised to use huge pages. All pages are touched at creation, because a first
/// touch costs five times an ordinary one and would be counted to the kernel that makes it.
pub struct Buffer<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: a buffer owns its elements as `Vec` does, and has no interior mutability.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T> Buffer<T> {
    fn layout(len: usize) -> Layout {
        let bytes = len.checked_mul(size_of::<T>()).expect("a buffer's size overflows");
        let alignment = if bytes >= HUGE_FROM { HUGE_PAGE } else { ALIGNMENT };
        Layout::from_size_align(bytes, alignment).expect("a buffer's size overflows")
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T: Stored> Buffer<T> {
    /// `len` zeros. Aborts as `Vec` does where there is no memory.
    pub fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        if layout.size() == 0 {
            return Buffer { start: NonNull::dangling(), len };
        }
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory) else { handle_alloc_error(layout) };
        if layout.size() >= HUGE_FROM {
            advise_huge_pages(start.as_ptr(), layout.size());
        }
        // SAFETY: the allocation has this size, and all bits zero are a valid float.
        unsafe { start.as_ptr().write_bytes(0, layout.size()) };
        Buffer { start: start.cast(), len }
    }

    /// `len` elements, each `value(index)`.
    pub fn from_fn(len: usize, value: impl FnMut(usize) -> T) -> Self {
        let mut buffer = Self::new(len);
        let mut value = value;
        buffer.iter_mut().enumerate().for_each(|(i, x)| *x = value(i));
        buffer
    }
}

impl<S: Stored> Buffer<S> {
    /// Numbers in [-1/2, 1/2) without a pattern that a product could profit from: to measure with.
    pub fn without_pattern(len: usize) -> Self {
        Self::from_fn(len, |at| {
            let bits = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            S::rounded(S::Real::from_f64(bits as f64 / (1u64 << 24) as f64 - 0.5))
        })
    }
}

#[cfg(target_os = "linux")]
fn advise_huge_pages(start: *mut u8, bytes: usize) {
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(start: *mut u8, bytes: usize, advice: i32) -> i32;
    }
    // SAFETY: the range is one allocation and its start is aligned to a page. The advice changes
    // no contents; a kernel without huge pages refuses it, which costs speed only.
    unsafe { madvise(start, bytes, MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_start: *mut u8, _bytes: usize) {}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.len);
        if layout.size() > 0 {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised elements, borrowed as the buffer is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised elements, borrowed as the buffer is.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> AsRef<[T]> for Buffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for Buffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Stored> Default for Buffer<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
