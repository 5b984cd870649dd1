//! What collectives work on: element types, buffers, reductions.

use std::fmt;
use std::ops::Add;

mod sealed {
    /// Transfers rely on elements that have no padding and whose arithmetic does not panic.
    pub trait Sealed {}

    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for half::bf16 {}
}

/// A number that collectives can reduce: `f32`, `f64`, `bf16`. Sums are taken in this type: in `bf16` every addition
/// rounds.
pub trait Element: sealed::Sealed + Copy + Send + Sync + PartialOrd + Add<Output = Self> + Default + 'static {}

impl Element for f32 {}
impl Element for f64 {}
impl Element for half::bf16 {}

/// A buffer that can travel through a collective: owned, and a slice of elements (`Vec<T>`, `Box<[T]>`, a
/// tensor's storage). Implemented for every type that fits.
pub trait Buffer<T>: AsRef<[T]> + AsMut<[T]> + Send + 'static {}

impl<T, B: AsRef<[T]> + AsMut<[T]> + Send + 'static> Buffer<T> for B {}

/// How an all-reduce combines the members' elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The sum, in the element type.
    Sum,
    /// The maximum; NaN if any element is NaN.
    Max,
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reduction::Sum => "sum",
            Reduction::Max => "max",
        })
    }
}
