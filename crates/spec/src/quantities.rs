//! Numbers with units, and lists and ranges of them, as users write them.

use crate::SpecError;

/// Units of bytes, the longest names first.
const UNITS: [(&str, f64); 7] = [
    ("gib", 1_073_741_824.0),
    ("mib", 1_048_576.0),
    ("kib", 1024.0),
    ("gb", 1e9),
    ("mb", 1e6),
    ("kb", 1e3),
    ("b", 1.0),
];

/// Bytes that `4GB` or `512 MiB` means; `None` without a number or a unit.
pub fn bytes(text: &str) -> Option<f64> {
    let lower = text.to_lowercase();
    let (digits, unit) = UNITS.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, *unit)))?;
    Some(digits.trim().parse::<f64>().ok()? * unit)
}

/// Letters that stand for thousands, millions and so on behind a number.
const TIMES: [(char, f64); 5] = [('K', 1e3), ('M', 1e6), ('G', 1e9), ('B', 1e9), ('T', 1e12)];

/// Reads an amount that may be large, e.g. `300e9` or `15T`.
///
/// # Errors
/// What is no number.
pub fn amount(text: &str) -> Result<f64, SpecError> {
    let letter = text.chars().last().map(|letter| letter.to_ascii_uppercase());
    let times = TIMES.iter().find(|(known, _)| letter == Some(*known));
    let (number, times) = times.map_or((text, 1.0), |(_, times)| (&text[..text.len() - 1], *times));
    let number = number.trim_end().parse::<f64>().ok();
    number.map(|number| number * times).ok_or_else(|| SpecError::Number {
        rule: "a number".to_owned(),
        remedy: "write e.g. 300e9, 300B or 15T".to_owned(),
    })
}

/// Most values that a list or a range may have.
const MOST_VALUES: usize = 256;

/// Reads `4,8,64`, `64..4096` (doubled from the first) or `1e12..8e12:5` (so many, with equal ratios); ascending.
///
/// # Errors
/// What is no positive number, a range that does not ascend, more than 256 values.
pub fn numbers(what: &'static str, text: &str) -> Result<Vec<f64>, SpecError> {
    let syntax = |reason: &str| SpecError::Syntax { what, text: text.to_owned(), reason: reason.to_owned() };
    let number = |part: &str| {
        let value = part.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
        value.ok_or_else(|| syntax("write positive numbers, e.g. 4,8,64 or 64..4096"))
    };
    let mut values = match text.split_once("..") {
        None => text.split(',').map(number).collect::<Result<Vec<_>, _>>()?,
        Some((first, rest)) => {
            let (last, points) = rest.split_once(':').map_or((rest, None), |(last, points)| (last, Some(points)));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(syntax("a range ascends, e.g. 64..4096"));
            }
            match points {
                None => std::iter::successors(Some(first), |value| Some(value * 2.0))
                    .take_while(|value| *value <= last)
                    .take(MOST_VALUES + 1)
                    .collect(),
                Some(points) => {
                    let points = points.trim().parse().ok().filter(|points| (2..=MOST_VALUES).contains(points));
                    let points = points.ok_or_else(|| syntax("a range has 2 to 256 points, e.g. 1e12..8e12:5"))?;
                    let ratio = last / first;
                    (0..points).map(|at| first * ratio.powf(at as f64 / (points - 1) as f64)).collect()
                }
            }
        }
    };
    values.sort_by(f64::total_cmp);
    values.dedup();
    if values.len() > MOST_VALUES {
        return Err(syntax("that are more than 256 values; use fewer, e.g. 1..1e6:20"));
    }
    Ok(values)
}

/// The same for whole numbers; those of a range with points are rounded.
///
/// # Errors
/// As [`numbers`]; a number that is not whole, or above 2^24.
pub fn whole_numbers(what: &'static str, text: &str) -> Result<Vec<usize>, SpecError> {
    let rounded = text.contains(':');
    let mut whole = Vec::new();
    for value in numbers(what, text)? {
        if !rounded && value.fract() != 0.0 || value > 16_777_216.0 {
            let reason = "these are whole numbers of at most 2^24, e.g. 64..4096".to_owned();
            return Err(SpecError::Syntax { what, text: text.to_owned(), reason });
        }
        whole.push(value.round() as usize);
    }
    whole.dedup();
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit() {
        let read = ["4GB", "512 MiB", "4gb", "1kib", "0.5 B"].map(bytes);
        assert_eq!(read, [Some(4e9), Some(536_870_912.0), Some(4e9), Some(1024.0), Some(0.5)]);
        assert_eq!(["4", "GB", "4TB", "four MB"].map(bytes), [None; 4]);
    }

    #[test]
    fn amounts_may_have_a_letter() {
        let amounts = ["15T", "300b", "1.5 G", "20M", "4k", "7", "3e11"].map(amount);
        assert_eq!(amounts, [1.5e13, 3e11, 1.5e9, 2e7, 4e3, 7.0, 3e11].map(Ok));
        for text in ["T", "15TB", "", "many"] {
            let told = amount(text).unwrap_err().to_string();
            assert_eq!(told, "it is a number; write e.g. 300e9, 300B or 15T", "{text}");
        }
    }

    #[test]
    fn lists_and_ranges_are_read() {
        assert_eq!(whole_numbers("devices", "8,4,64,8"), Ok(vec![4, 8, 64]));
        assert_eq!(whole_numbers("devices", "64..600"), Ok(vec![64, 128, 256, 512]));
        assert_eq!(whole_numbers("devices", "10..1000:3"), Ok(vec![10, 100, 1000]));
        let rates = numbers("rates", "1e12..16e12:5").unwrap();
        assert!(rates.len() == 5 && (rates[2] / 4e12 - 1.0).abs() < 1e-12, "{rates:?}");
        for wrong in ["", "x", "0", "-4", "4..", "8..4", "1..2:1", "1..2:x", "1e-200..1", "1..1e9:400", "inf"] {
            assert!(numbers("rates", wrong).is_err(), "{wrong}");
        }
        for wrong in ["1.5", "1e9", "0.5..4"] {
            assert!(whole_numbers("devices", wrong).is_err(), "{wrong}");
        }
    }
}
