//! Elements in a device's memory, as kernels get them.

use std::ops::Range;

use half::bf16;

use crate::driver::Address;

/// What an array has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// 64-bit floating point.
    F64,
    /// 32-bit floating point.
    F32,
    /// The upper half of 32-bit floating point.
    Bf16,
    /// Numbers of tokens, rows and places.
    U32,
}

impl Element {
    /// The size of one.
    pub const fn bytes(self) -> usize {
        match self {
            Element::F64 => 8,
            Element::F32 | Element::U32 => 4,
            Element::Bf16 => 2,
        }
    }

    /// What is computed in where values are stored so.
    pub fn real(self) -> Self {
        if self == Element::Bf16 { Element::F32 } else { self }
    }

    /// The format of kernels whose values are stored so.
    ///
    /// # Panics
    /// Of whole numbers.
    pub fn format(self) -> Format {
        match self {
            Element::F64 => Format::F64,
            Element::F32 => Format::F32,
            Element::Bf16 => Format::Mixed,
            Element::U32 => panic!("values are no whole numbers"),
        }
    }
}

/// What the values of a kernel are stored in and computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Both `f64`.
    F64,
    /// Both `f32`.
    F32,
    /// Stored as `bf16`, computed with in `f32`.
    Mixed,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 3] = [Format::F64, Format::F32, Format::Mixed];

    /// How entry points of kernels end.
    pub fn name(self) -> &'static str {
        match self {
            Format::F64 => "f64",
            Format::F32 => "f32",
            Format::Mixed => "mixed",
        }
    }
}

/// A type of the host whose values devices have as well.
pub trait Number: Copy + Default + 'static {
    /// What an array of them has.
    const ELEMENT: Element;
}

impl Number for f64 {
    const ELEMENT: Element = Element::F64;
}
impl Number for f32 {
    const ELEMENT: Element = Element::F32;
}
impl Number for bf16 {
    const ELEMENT: Element = Element::Bf16;
}
impl Number for u32 {
    const ELEMENT: Element = Element::U32;
}

/// Elements of one kind, one after the other, in a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Array {
    /// Where they begin.
    pub at: Address,
    /// How many they are.
    pub len: usize,
    /// What they are.
    pub element: Element,
}

impl Array {
    /// Their size.
    pub fn bytes(self) -> usize {
        self.len * self.element.bytes()
    }

    /// Some of them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "elements {range:?} of {}", self.len);
        Self { at: self.at.offset(range.start * self.element.bytes()), len: range.len(), ..self }
    }
}
