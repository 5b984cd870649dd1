//! Sizes of buffers as users write them.

use std::str::FromStr;

use quadrille_spec::{SpecError, quantities};

use super::cases::ELEMENT_BYTES;

const MIB: f64 = 1_048_576.0;
/// The factor between the sizes of a range.
const FACTOR: u64 = 4;
const LARGEST: f64 = 1_099_511_627_776.0;

/// Sizes of buffers in bytes, ascending; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<u64>);

impl Sizes {
    /// The sizes.
    pub fn bytes(&self) -> &[u64] {
        &self.0
    }
}

impl FromStr for Sizes {
    type Err = SpecError;

    /// Reads `64KiB,1MiB` or `4KiB..256MiB` (in factors of 4), or both; numbers without a unit are MiB.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(size(part)?),
                Some((first, last)) => {
                    let first = size(first)?;
                    let last = size(last)?;
                    if first > last {
                        return Err(SpecError::Syntax {
                            what: "sizes",
                            text: part.to_owned(),
                            reason: "a range ascends, e.g. 4KiB..256MiB".to_owned(),
                        });
                    }
                    let steps = std::iter::successors(Some(first), |size| size.checked_mul(FACTOR));
                    sizes.extend(steps.take_while(|size| *size <= last));
                }
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self(sizes))
    }
}

fn size(text: &str) -> Result<u64, SpecError> {
    let text = text.trim();
    let bytes = quantities::bytes(text).or_else(|| Some(text.parse::<f64>().ok()? * MIB));
    let Some(bytes) = bytes.filter(|bytes| bytes.is_finite()) else {
        let reason = "write sizes with units, e.g. 64KiB,1MiB or 4KiB..256MiB; without a unit they are MiB".to_owned();
        return Err(SpecError::Syntax { what: "sizes", text: text.to_owned(), reason });
    };
    if !(ELEMENT_BYTES as f64..=LARGEST).contains(&bytes) {
        let rule = format!("a buffer has at least one f32, {ELEMENT_BYTES} B, and at most 1024GiB");
        return Err(SpecError::invalid("sizes", text, rule, "write e.g. 4KiB..64MiB"));
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u64> {
        text.parse::<Sizes>().unwrap().0
    }

    #[test]
    fn lists_and_ranges_are_read() {
        assert_eq!(sizes("1, 16,64"), [1 << 20, 16 << 20, 64 << 20]);
        assert_eq!(sizes("4KiB..1MiB"), [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]);
        assert_eq!(sizes("4kib..63KiB"), [4 << 10, 16 << 10]);
        assert_eq!(sizes("1MB,4B,4 B..64B"), [4, 16, 64, 1_000_000]);
        assert_eq!(sizes("0.5"), [1 << 19]);
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_remedy() {
        for (text, words) in [
            ("", ["sizes", "4KiB..256MiB"]),
            ("many", ["'many'", "4KiB..256MiB"]),
            ("1MiB,,2MiB", ["sizes", "without a unit"]),
            ("2B", ["sizes = 2B", "at least one f32, 4 B"]),
            ("0", ["sizes = 0", "4KiB..64MiB"]),
            ("-1MiB", ["sizes = -1MiB", "4 B"]),
            ("2048GiB", ["sizes = 2048GiB", "at most 1024GiB"]),
            ("1MiB..4KiB", ["'1MiB..4KiB'", "ascends"]),
            ("nan", ["'nan'", "units"]),
        ] {
            let message = text.parse::<Sizes>().unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
        }
    }
}
