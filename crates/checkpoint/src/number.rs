//! The types of stored numbers.

use quadrille_spec::RealType;

use crate::Quantity;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A type that tensors are stored in and read as.
pub trait Number: sealed::Sealed + Copy + PartialEq + Send + Sync + 'static {
    /// Its name.
    const TYPE: RealType;

    /// Exact.
    fn from_f32(number: f32) -> Self;

    /// The nearest number of this type; infinite where it is too large for the type.
    fn rounded(number: f64) -> Self;

    /// Neither infinite nor not a number.
    fn is_finite(self) -> bool;

    /// Appends the numbers' bytes, lowest first.
    fn append(numbers: &[Self], bytes: &mut Vec<u8>);
}

impl Number for f32 {
    const TYPE: RealType = RealType::F32;

    fn from_f32(number: f32) -> Self {
        number
    }

    fn rounded(number: f64) -> Self {
        number as Self
    }

    fn is_finite(self) -> bool {
        self.is_finite()
    }

    fn append(numbers: &[Self], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + size_of_val(numbers), 0);
        for (bytes, number) in bytes[start..].as_chunks_mut().0.iter_mut().zip(numbers) {
            *bytes = number.to_le_bytes();
        }
    }
}

impl Number for f64 {
    const TYPE: RealType = RealType::F64;

    fn from_f32(number: f32) -> Self {
        number.into()
    }

    fn rounded(number: f64) -> Self {
        number
    }

    fn is_finite(self) -> bool {
        self.is_finite()
    }

    fn append(numbers: &[Self], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + size_of_val(numbers), 0);
        for (bytes, number) in bytes[start..].as_chunks_mut().0.iter_mut().zip(numbers) {
            *bytes = number.to_le_bytes();
        }
    }
}

/// Appends the bytes of elements of a quantity.
pub(crate) fn encode<T: Number>(quantity: Quantity, numbers: &[T], bytes: &mut Vec<u8>) {
    match quantity {
        Quantity::Value | Quantity::FirstMoment | Quantity::SecondMoment => T::append(numbers, bytes),
        Quantity::Kept => bytes.extend(numbers.iter().map(|number| u8::from(*number != T::from_f32(0.0)))),
    }
}

/// Reads elements of a quantity into `out`, as many as there is room for; numbers are stored as `stored`.
pub(crate) fn decode<T: Number>(quantity: Quantity, stored: RealType, bytes: &[u8], out: &mut [T]) {
    match stored {
        _ if quantity == Quantity::Kept => {
            for (number, byte) in out.iter_mut().zip(bytes) {
                *number = T::from_f32(if *byte == 0 { 0.0 } else { 1.0 });
            }
        }
        RealType::F32 => {
            for (number, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *number = T::from_f32(f32::from_le_bytes(*bytes));
            }
        }
        RealType::F64 => {
            for (number, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *number = T::rounded(f64::from_le_bytes(*bytes));
            }
        }
    }
}

/// How many of the stored elements of a quantity are infinite or not numbers.
pub(crate) fn not_finite(quantity: Quantity, stored: RealType, bytes: &[u8]) -> u64 {
    let count = match stored {
        _ if quantity == Quantity::Kept => 0,
        RealType::F32 => bytes.as_chunks().0.iter().filter(|bytes| !f32::from_le_bytes(**bytes).is_finite()).count(),
        RealType::F64 => bytes.as_chunks().0.iter().filter(|bytes| !f64::from_le_bytes(**bytes).is_finite()).count(),
    };
    count as u64
}
