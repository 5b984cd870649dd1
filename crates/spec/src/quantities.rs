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

/// Letters that stand for powers of 1,024 behind a number of tokens in a sequence or a step.
const BINARY: [(char, f64); 3] = [('K', 1024.0), ('M', 1_048_576.0), ('G', 1_073_741_824.0)];
/// Up to here every whole number is one of 64 bits with a fraction, too.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads a whole number in digits, and one with a letter: `8192`, `8k` (8,192) or `0.5M` (524,288); and whether it has a letter.
fn binary(text: &str) -> Option<(usize, bool)> {
    let letter = text.chars().last()?.to_ascii_uppercase();
    let Some((_, times)) = BINARY.iter().find(|(known, _)| letter == *known) else {
        return Some((text.parse().ok()?, false));
    };
    Some((exact(text[..text.len() - 1].trim_end().parse::<f64>().ok()? * times)?, true))
}

/// The whole number that a number with a fraction is.
fn exact(number: f64) -> Option<usize> {
    (number.fract() == 0.0 && (0.0..=MOST_EXACT).contains(&number)).then_some(number as usize)
}

/// Text before the word for tokens, if it has that.
fn before_tokens(text: &str) -> Option<&str> {
    text.trim().strip_suffix("tokens").map(str::trim_end)
}

/// Reads the tokens of a sequence: `8192`, `8k` or `8k tokens`.
///
/// # Errors
/// What is no whole number.
pub fn tokens(text: &str) -> Result<usize, SpecError> {
    let read = binary(before_tokens(text).unwrap_or_else(|| text.trim()));
    read.map(|(number, _)| number).ok_or_else(|| SpecError::Number {
        rule: "a whole number of tokens".to_owned(),
        remedy: "write e.g. 8192, or 8k for 8 x 1024".to_owned(),
    })
}

/// Size of a step's batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchSize {
    /// Whole sequences.
    Sequences(usize),
    /// Tokens of all sequences.
    Tokens(usize),
}

/// Reads a batch: a plain number, `512`, counts sequences; one with a letter, `4M`, or with the word, `4194304 tokens`, counts tokens.
///
/// # Errors
/// What is no whole number.
pub fn batch(text: &str) -> Result<BatchSize, SpecError> {
    let read = match before_tokens(text) {
        // With the word they may have an exponent, too.
        Some(number) => {
            binary(number).map(|(tokens, _)| tokens).or_else(|| exact(number.parse().ok()?)).map(BatchSize::Tokens)
        }
        None => binary(text.trim())
            .map(|(number, letter)| if letter { BatchSize::Tokens(number) } else { BatchSize::Sequences(number) }),
    };
    read.ok_or_else(|| SpecError::Number {
        rule: "a whole number of sequences, or of tokens with k, M, G or the word".to_owned(),
        remedy: "write e.g. 512, 4M for 4 x 1024 x 1024 tokens, or \"4000000 tokens\"".to_owned(),
    })
}

/// Most values that a list or a range may have.
const MOST_VALUES: usize = 256;

/// Reads `4,8,64`, `64..4096` (doubled from the first) or `1e12..8e12:5` (so many, with equal ratios); ascending.
///
/// # Errors
/// What is no positive number, a range that does not ascend, more than 256 values.
pub fn numbers(what: &'static str, text: &str) -> Result<Vec<f64>, SpecError> {
    read_numbers(what, text, |part| part.parse().ok())
}

/// The same for tokens of sequences, each as [`tokens`] reads it: `4k,8k` or `4k..64k`; those of a range with points are rounded.
///
/// # Errors
/// As [`numbers`].
pub fn lengths(what: &'static str, text: &str) -> Result<Vec<f64>, SpecError> {
    let length = |part: &str| tokens(part).ok().or_else(|| exact(part.parse().ok()?)).map(|length| length as f64);
    let mut lengths = read_numbers(what, text, length)?;
    lengths.iter_mut().for_each(|length| *length = length.round());
    lengths.dedup();
    Ok(lengths)
}

fn read_numbers(what: &'static str, text: &str, read: impl Fn(&str) -> Option<f64>) -> Result<Vec<f64>, SpecError> {
    let syntax = |reason: &str| SpecError::Syntax { what, text: text.to_owned(), reason: reason.to_owned() };
    let number = |part: &str| {
        let value = read(part.trim()).filter(|value| value.is_finite() && *value > 0.0);
        value.ok_or_else(|| syntax("write positive numbers, e.g. 4,8,64 or 64..4096"))
    };
    let mut values = match text.split_once("..") {
        None => text.split(',').map(number).collect::<Result<Vec<_>, _>>()?,
        Some((first, rest)) => {
            let (last, points) = rest.split_once(':').map_or((rest, None), |(last, points)| (last, Some(points)));
            let first = number(first)?;
            let last = number(last)?;
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
    fn tokens_come_in_powers_of_1024() {
        let read = ["8192", "8k", "0.5M", "1m", "128K tokens", " 512 "].map(tokens);
        assert_eq!(read, [8192, 8192, 524_288, 1_048_576, 131_072, 512].map(Ok));
        assert_eq!(tokens(&usize::MAX.to_string()), Ok(usize::MAX));
        for text in ["", "k", "8kb", "1.5", "1e3", "0.3k", "-8", "eight", "1e300k", "nan"] {
            let told = tokens(text).unwrap_err().to_string();
            assert_eq!(told, "it is a whole number of tokens; write e.g. 8192, or 8k for 8 x 1024", "{text}");
        }
    }

    /// Only what says so counts tokens.
    #[test]
    fn batches_are_of_sequences_or_of_tokens() {
        assert_eq!(batch("512"), Ok(BatchSize::Sequences(512)));
        for (text, count) in [("4M", 4_194_304), ("512k", 524_288), ("1000 tokens", 1000), ("4e6 tokens", 4_000_000)] {
            assert_eq!(batch(text), Ok(BatchSize::Tokens(count)), "{text}");
        }
        assert!(batch("7x").unwrap_err().to_string().contains("4M for 4 x 1024 x 1024 tokens"));
        assert!(["3.2M", "4MB", "4 sequences", "1e3", "1.5 tokens", "-1", ""].iter().all(|text| batch(text).is_err()));
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
        assert_eq!(lengths("tokens", "8k,4096"), Ok(vec![4096.0, 8192.0]));
        assert_eq!(lengths("tokens", "4k..16k"), Ok(vec![4096.0, 8192.0, 16_384.0]));
        assert_eq!(lengths("tokens", "1e3,512"), Ok(vec![512.0, 1000.0]));
        assert!(["0", "1.5", "8kb"].iter().all(|wrong| lengths("tokens", wrong).is_err()));
        for wrong in ["1.5", "1e9", "0.5..4"] {
            assert!(whole_numbers("devices", wrong).is_err(), "{wrong}");
        }
    }
}
