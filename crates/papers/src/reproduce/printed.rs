//! A number as it was printed: its value and how far it was rounded.

use std::fmt;
use std::str::FromStr;

use quadrille_spec::SpecError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A printed positive number; its decimals count: `37.0` is more exact than `37`. Or a printed range, `3-5`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Printed {
    least: f64,
    most: f64,
    decimals: usize,
}

impl Printed {
    /// A number that was counted.
    pub(super) fn count(number: usize) -> Self {
        Self { least: number as f64, most: number as f64, decimals: 0 }
    }

    /// A number that was saved in full, to so many decimals.
    pub(super) fn rounded(number: f64, decimals: usize) -> Result<Self, SpecError> {
        let text = format!("{number:.decimals$}");
        text.parse().map_err(|reason| SpecError::Syntax { what: "published figures", text, reason })
    }

    /// The number; of a range the one nearest to `ours`.
    pub fn nearest(self, ours: f64) -> f64 {
        ours.max(self.least).min(self.most)
    }

    /// Digits after the point.
    pub fn decimals(self) -> usize {
        self.decimals
    }

    /// Half a unit of the last digit: how far the exact number may lie from [`Printed::nearest`].
    pub fn rounding(self) -> f64 {
        0.5 * 0.1_f64.powi(self.decimals as i32)
    }
}

impl FromStr for Printed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        match (positive(least), positive(most)) {
            (Some(least), Some(most)) if least.0 <= most.0 && least.1 == most.1 => {
                Ok(Self { least: least.0, most: most.0, decimals: least.1 })
            }
            _ => Err(format!("a printed figure is a positive number, or a range such as 3-5, not '{text}'")),
        }
    }
}

/// A positive number and how many decimals it has.
fn positive(text: &str) -> Option<(f64, usize)> {
    let digits_only = text.chars().all(|character| character.is_ascii_digit() || character == '.');
    let value = text.parse::<f64>().ok().filter(|value| digits_only && *value > 0.0 && value.is_finite());
    Some((value?, text.split_once('.').map_or(0, |(_, decimals)| decimals.len())))
}

impl TryFrom<String> for Printed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let Self { least, most, decimals } = *self;
        write!(formatter, "{least:.decimals$}")?;
        if most > least { write!(formatter, "-{most:.decimals$}") } else { Ok(()) }
    }
}

/// Reads a file of printed figures.
pub(super) fn read<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, SpecError> {
    toml::from_str(text).map_err(|error| SpecError::Syntax {
        what: "published figures",
        text: name.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_and_ranges_are_kept() {
        let texts = [
            ("37.0", [37.0; 3], 0.05),
            ("37", [37.0; 3], 0.5),
            ("0.048", [0.048; 3], 0.0005),
            ("3-5", [3.0, 4.5, 5.0], 0.5),
        ];
        for (text, nearest, rounding) in texts {
            let printed: Printed = text.parse().unwrap();
            assert_eq!(
                ([0.001, 4.5, 50.0].map(|ours| printed.nearest(ours)), printed.to_string().as_str()),
                (nearest, text)
            );
            assert!((printed.rounding() - rounding).abs() < 1e-15);
        }
    }

    #[test]
    fn what_is_no_positive_number_is_refused() {
        for text in ["", "0", "0.0", "-1", "inf", "nan", "1e3", "1.2.3", "about 4", "5-3", "3-", "3-5.0", "3-4-5"] {
            assert!(text.parse::<Printed>().unwrap_err().contains("positive number"), "{text}");
        }
    }

    #[test]
    fn unreadable_figures_are_named() {
        #[derive(Debug, serde::Deserialize)]
        struct File {
            days: Printed,
        }
        let message = |text: &str| read::<File>("x.toml", text).unwrap_err().to_string();
        assert_eq!(read::<File>("x.toml", "days = \"4.5\"").unwrap().days.nearest(0.0), 4.5);
        assert!(message("days = \"many\"").contains("published figures from 'x.toml'"));
        assert!(message("days = \"0\"").contains("a printed figure is a positive number"));
    }
}
