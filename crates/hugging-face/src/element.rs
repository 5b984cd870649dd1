//! The types that weights are stored in, and the way to and from them.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use quadrille_spec::SpecError;
use safetensors::Dtype;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The types of stored weights that can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoredType {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point with 5 bits of exponent.
    F16,
    /// 16-bit floating point with f32's 8 bits of exponent.
    Bf16,
}

impl StoredType {
    /// Every type with its name here and in a `config.json`.
    pub const ALL: [(Self, &'static str, &'static str); 3] =
        [(Self::F32, "f32", "float32"), (Self::F16, "f16", "float16"), (Self::Bf16, "bf16", "bfloat16")];

    /// The type's name here: `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The type's name in a `config.json`, e.g. `bfloat16`.
    pub fn library_name(self) -> &'static str {
        Self::ALL[self as usize].2
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// The type of a safetensors header; `None` where it is not one of these.
    pub fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F16 => Some(Self::F16),
            Dtype::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// The type in a safetensors header.
    pub fn in_header(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
        }
    }

    /// Reads little-endian elements; exact, since f32 holds every number of every type.
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        debug_assert_eq!(bytes.len(), out.len() * self.bytes());
        let pairs = || bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        match self {
            Self::F32 => {
                for (element, quad) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *element = f32::from_le_bytes([quad[0], quad[1], quad[2], quad[3]]);
                }
            }
            Self::F16 => out.iter_mut().zip(pairs()).for_each(|(out, bits)| *out = f16::from_bits(bits).to_f32()),
            // The upper half of an f32: also the bits of what is no number stay.
            Self::Bf16 => {
                out.iter_mut().zip(pairs()).for_each(|(out, bits)| *out = f32::from_bits(u32::from(bits) << 16))
            }
        }
    }

    /// Appends an element's little-endian bytes, rounded to nearest, ties to even; the number that it then is.
    pub(crate) fn encode<T: Narrow>(self, element: T, bytes: &mut Vec<u8>) -> f32 {
        match self {
            Self::F32 => {
                let rounded = element.to_f32();
                bytes.extend(rounded.to_le_bytes());
                rounded
            }
            Self::F16 => {
                let rounded = element.to_f16();
                bytes.extend(rounded.to_bits().to_le_bytes());
                rounded.to_f32()
            }
            Self::Bf16 => {
                let bits = element.to_bf16_bits();
                bytes.extend(bits.to_le_bytes());
                f32::from_bits(u32::from(bits) << 16)
            }
        }
    }
}

impl fmt::Display for StoredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StoredType {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::ALL.iter().find(|(_, name, _)| *name == text).map(|(stored, ..)| *stored).ok_or_else(|| {
            let known = Self::ALL.iter().map(|(_, name, _)| (*name).to_owned()).collect();
            SpecError::Unknown { what: "type of stored weights", name: text.to_owned(), known }
        })
    }
}

/// A number of a checkpoint, to be stored in a type that may be narrower. Each is rounded once.
pub trait Narrow: Copy + Default {
    /// The nearest f32.
    fn to_f32(self) -> f32;
    /// The nearest f16.
    fn to_f16(self) -> f16;
    /// The bits of the nearest bf16.
    fn to_bf16_bits(self) -> u16;
    /// The same number in f64.
    fn to_f64(self) -> f64;
}

impl Narrow for f32 {
    fn to_f32(self) -> f32 {
        self
    }

    fn to_f16(self) -> f16 {
        f16::from_f32(self)
    }

    fn to_bf16_bits(self) -> u16 {
        let bits = self.to_bits();
        // What came from a bf16 goes back as it was, also where it is no number.
        if bits & 0xffff == 0 { (bits >> 16) as u16 } else { bf16::from_f32(self).to_bits() }
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Narrow for f64 {
    fn to_f32(self) -> f32 {
        self as f32
    }

    fn to_f16(self) -> f16 {
        f16::from_f32(to_odd(self))
    }

    fn to_bf16_bits(self) -> u16 {
        bf16::from_f32(to_odd(self)).to_bits()
    }

    fn to_f64(self) -> f64 {
        self
    }
}

/// The f32 next to a number, the odd one of two: a further rounding then is as if it were the only one (Boldo and
/// Melquiond, 2008). `half`'s own functions leave out the lower half of an f64, also where it decides.
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let exact = f64::from(nearest);
    if exact == number || number.is_nan() {
        return nearest;
    }
    let towards_zero = nearest.to_bits() - u32::from(exact.abs() > number.abs());
    f32::from_bits(towards_zero | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_16_bits_comes_back() {
        for stored in [StoredType::F16, StoredType::Bf16] {
            let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let mut numbers = vec![0.0; 1 << 16];
            stored.decode(&bytes, &mut numbers);
            let mut back = Vec::new();
            for number in &numbers {
                stored.encode(*number, &mut back);
            }
            for (number, (before, after)) in numbers.iter().zip(bytes.chunks(2).zip(back.chunks(2))) {
                // Of an f16 that is no number, processors change a bit.
                let same = before == after || stored == StoredType::F16 && number.is_nan();
                assert!(same, "{stored} {number}: {before:x?} {after:x?}");
            }
            let finite = numbers.iter().filter(|number| number.is_finite()).count();
            assert_eq!(finite, if stored == StoredType::F16 { 0xf800 } else { 0xff00 });
        }
    }

    #[test]
    fn numbers_are_rounded_once_to_nearest_even() {
        let encoded = |number: f64, stored: StoredType| stored.encode(number, &mut Vec::new());
        // Halfway between two bf16 but for a bit that f32 does not have: rounding by way of f32 would go down.
        let number = 1.0 + 1.0 / 256.0 + 1e-12;
        assert_eq!(encoded(number, StoredType::Bf16), 1.0 + 1.0 / 128.0);
        assert_eq!(StoredType::Bf16.encode(number as f32, &mut Vec::new()), 1.0);
        assert_eq!(encoded(1.0 + 3.0 / 2048.0, StoredType::F16), 1.0 + 2.0 / 1024.0);
        assert_eq!(encoded(-1.0 - 1.0 / 256.0 + 1e-12, StoredType::Bf16), -1.0);
        assert_eq!((encoded(1e-60, StoredType::F16), encoded(3.4e38, StoredType::Bf16)), (0.0, f32::INFINITY));
        assert_eq!(encoded(f64::MAX, StoredType::Bf16), f32::INFINITY);
        assert!(
            encoded(f64::NAN, StoredType::Bf16).is_nan()
                && encoded(-f64::INFINITY, StoredType::F16) == f32::NEG_INFINITY
        );
        assert_eq!(encoded(70_000.0, StoredType::F16), f32::INFINITY);
        assert_eq!(encoded(0.1, StoredType::F32), 0.1_f32);
    }

    #[test]
    fn names_are_read_and_unknown_ones_refused() {
        for (stored, name, _) in StoredType::ALL {
            assert_eq!((name.parse::<StoredType>().unwrap(), stored.to_string().as_str()), (stored, name));
            assert_eq!(StoredType::of(stored.in_header()), Some(stored));
        }
        let message = "fp8".parse::<StoredType>().unwrap_err().to_string();
        assert_eq!(message, "unknown type of stored weights 'fp8'; known: f32, f16, bf16");
        assert_eq!(StoredType::of(Dtype::I8), None);
    }
}
