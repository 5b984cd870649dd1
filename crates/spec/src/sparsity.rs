//! How much of a model's weights is pruned.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The part of weights that is pruned: a decimal, at least 0, less than 1. It is exact, as its digits say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sparsity {
    /// What stands behind the point, as a whole number.
    digits: u64,
    /// How many digits these are.
    places: u32,
}

impl Sparsity {
    /// What a sparsity is, in words.
    pub const RULE: &str =
        "it is the part of weights that becomes zero, as digits behind a point, at least 0 and less than 1, e.g. 0.9";

    /// Digits at most.
    const PLACES: usize = 18;

    /// The part, as the number that is nearest.
    pub fn part(self) -> f64 {
        self.digits as f64 / 10_f64.powi(self.places as i32)
    }

    /// How many of `elements` are kept.
    pub fn kept(self, elements: u64) -> u64 {
        let pruned = u128::from(elements) * u128::from(self.digits) / 10_u128.pow(self.places);
        elements - pruned as u64 // less than all
    }
}

impl fmt::Display for Sparsity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.places {
            0 => f.write_str("0"),
            places => write!(f, "0.{:0width$}", self.digits, width = places as usize),
        }
    }
}

impl Serialize for Sparsity {
    /// As the number that is nearest.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.part())
    }
}

impl FromStr for Sparsity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = match text.split_once('.') {
            None => Some("").filter(|_| text == "0"),
            Some((whole, digits)) => Some(digits).filter(|_| ["", "0"].contains(&whole) && !digits.is_empty()),
        };
        let digits =
            digits.filter(|digits| digits.len() <= Self::PLACES && digits.bytes().all(|byte| byte.is_ascii_digit()));
        // The same part has the same digits.
        let digits = digits.ok_or(Self::RULE)?.trim_end_matches('0');
        Ok(Self { digits: digits.parse().unwrap_or(0), places: digits.len() as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exact_and_the_same_however_they_are_written() {
        let read = |text: &str| text.parse::<Sparsity>().unwrap();
        assert_eq!(read("0.90"), read(".9"));
        assert_eq!([read("0.0"), read("0.000")], [read("0"); 2]);
        for text in ["0", "0.9", "0.05", "0.999999999999999999"] {
            assert_eq!(read(text).to_string(), text);
        }
        // Of 10^18 elements one is kept, which no float would say.
        assert_eq!(read("0.999999999999999999").kept(1_000_000_000_000_000_000), 1);
        assert_eq!([read("0.9").kept(10), read("0.9").kept(9), read("0").kept(7)], [1, 1, 7]);
        assert!((read("0.25").part() - 0.25).abs() < 1e-15);
        for wrong in ["1", "-0.1", "0.", ".", "", "0,9", "0.1e1", "0.1234567890123456789"] {
            assert_eq!(wrong.parse::<Sparsity>(), Err(Sparsity::RULE), "{wrong}");
        }
    }
}
