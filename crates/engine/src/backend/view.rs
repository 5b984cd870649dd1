//! Ranges of buffers, as kernels get them.

use std::ops::Range;

/// Which of a rank's two types elements have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`RankMemory::Stored`](super::RankMemory::Stored), that of weights and values.
    Stored,
    /// [`RankMemory::Real`](super::RankMemory::Real), that of sums, vectors, masters and moments.
    Real,
}

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
