//! What collectives work on: element types, reductions.

use std::fmt;
use std::ops::Add;

mod sealed {
    /// Transfers rely on elements that have no padding and whose arithmetic does not panic.
    pub trait Sealed {}

    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for half::bf16 {}
}

/// What the elements of a buffer are, where their type is not at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementKind {
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `bf16`
    Bf16,
}

impl ElementKind {
    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// A number that collectives can reduce: `f32`, `f64`, `bf16`. Sums are taken in this type: in `bf16` every addition
/// rounds.
pub trait Element: sealed::Sealed + Copy + Send + Sync + PartialOrd + Add<Output = Self> + Default + 'static {
    /// What it is.
    const KIND: ElementKind;
}

impl Element for f32 {
    const KIND: ElementKind = ElementKind::F32;
}

impl Element for f64 {
    const KIND: ElementKind = ElementKind::F64;
}

impl Element for half::bf16 {
    const KIND: ElementKind = ElementKind::Bf16;
}

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
