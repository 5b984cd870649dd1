//! Ranges of buffers, as kernels get them.

use std::ops::Range;

/// Elements of a buffer, to be read.
pub trait View: Copy {
    /// How many there are.
    fn elements(self) -> usize;

    /// Some of them; a range beyond the end panics.
    fn part(self, range: Range<usize>) -> Self;
}

/// Elements of a buffer, to be written.
pub trait ViewMut {
    /// How many there are.
    fn elements(&self) -> usize;
}

impl<T> View for &[T] {
    fn elements(self) -> usize {
        self.len()
    }

    fn part(self, range: Range<usize>) -> Self {
        &self[range]
    }
}

impl<T> ViewMut for &mut [T] {
    fn elements(&self) -> usize {
        self.len()
    }
}
