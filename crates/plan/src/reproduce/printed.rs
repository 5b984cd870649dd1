//! A number as it was printed: its value and how far it was rounded.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// A printed positive number; its decimals count: `37.0` is more exact than `37`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Printed {
    value: f64,
    decimals: usize,
}

impl Printed {
    /// The number.
    pub fn value(self) -> f64 {
        self.value
    }

    /// Digits after the point.
    pub fn decimals(self) -> usize {
        self.decimals
    }

    /// Half a unit of the last digit: how far the exact number may lie from the printed one.
    pub fn rounding(self) -> f64 {
        0.5 * 0.1_f64.powi(self.decimals as i32)
    }
}

impl FromStr for Printed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits_only = text.chars().all(|character| character.is_ascii_digit() || character == '.');
        let value = text.parse::<f64>().ok().filter(|value| digits_only && *value > 0.0 && value.is_finite());
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let value = value.ok_or_else(|| format!("a printed figure is a positive number, not '{text}'"))?;
        Ok(Self { value, decimals })
    }
}

impl TryFrom<String> for Printed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:.*}", self.decimals, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_kept() {
        for (text, value, rounding) in [("37.0", 37.0, 0.05), ("37", 37.0, 0.5), ("0.048", 0.048, 0.0005)] {
            let printed: Printed = text.parse().unwrap();
            assert_eq!((printed.value(), printed.to_string().as_str()), (value, text));
            assert!((printed.rounding() - rounding).abs() < 1e-15);
        }
    }

    #[test]
    fn what_is_no_positive_number_is_refused() {
        for text in ["", "0", "0.0", "-1", "inf", "nan", "1e3", "1.2.3", "about 4"] {
            assert!(text.parse::<Printed>().unwrap_err().contains("positive number"), "{text}");
        }
    }
}
