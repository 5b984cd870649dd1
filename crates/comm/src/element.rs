//! What collectives work on: element types, reductions.

use std::fmt;
use std::ops::Add;

mod sealed {
    /// Transfers rely on elements that have no padding and whose arithmetic does not panic.
    pub trait Sealed {}

    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
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
    /// `f16`
    F16,
}

impl ElementKind {
    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// A number that collectives can reduce: `f32`, `f64`, `bf16`, `f16`. Whoever adds several elements adds them in `f32`, or
/// `f64`, and rounds once. Ranks that share memory add all of a group's at once; algorithms that pass partial sums on, and
/// MPI's own, round at each rank.
pub trait Element: sealed::Sealed + Copy + Send + Sync + PartialOrd + Default + 'static {
    /// What it is.
    const KIND: ElementKind;

    /// What elements are combined in.
    type Wide: Copy + Default + PartialOrd + Add<Output = Self::Wide>;

    /// The same number.
    fn wide(self) -> Self::Wide;

    /// The nearest element, of two the even one.
    fn rounded(wide: Self::Wide) -> Self;

    /// The nearest elements, in `room` if they are not there already.
    #[doc(hidden)]
    fn all_rounded<'a>(wide: &'a [Self::Wide], room: &'a mut [Self]) -> &'a [Self];
}

macro_rules! real {
    ($type:ty, $kind:ident) => {
        impl Element for $type {
            const KIND: ElementKind = ElementKind::$kind;
            type Wide = Self;

            #[inline(always)]
            fn wide(self) -> Self {
                self
            }

            #[inline(always)]
            fn rounded(wide: Self) -> Self {
                wide
            }

            #[inline(always)]
            fn all_rounded<'a>(wide: &'a [Self], _: &'a mut [Self]) -> &'a [Self] {
                wide
            }
        }
    };
}

macro_rules! narrow {
    ($type:ty, $kind:ident) => {
        impl Element for $type {
            const KIND: ElementKind = ElementKind::$kind;
            type Wide = f32;

            #[inline(always)]
            fn wide(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn rounded(wide: f32) -> Self {
                Self::from_f32(wide)
            }

            #[inline(always)]
            fn all_rounded<'a>(wide: &'a [f32], room: &'a mut [Self]) -> &'a [Self] {
                let room = &mut room[..wide.len()];
                room.iter_mut().zip(wide).for_each(|(room, wide)| *room = Self::from_f32(*wide));
                room
            }
        }
    };
}

real!(f32, F32);
real!(f64, F64);
narrow!(half::bf16, Bf16);
narrow!(half::f16, F16);

/// How an all-reduce combines the members' elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
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
