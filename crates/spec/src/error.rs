//! The one error type of this crate: every message names the thing, its value, the rule and a remedy.

use crate::Refusal;
use crate::nearest_name::did_you_mean;

/// A description that cannot be used, with the rule that it breaks and what would be possible instead.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A field of a model, layout or cluster has a value outside its rule.
    #[error("{field} = {value}: {rule}; {remedy}")]
    Invalid {
        /// The field as the user writes it.
        field: String,
        /// The offending value.
        value: String,
        /// The rule that it breaks.
        rule: String,
        /// What to do instead.
        remedy: String,
    },
    /// A size of the grid does not divide a dimension that it cuts.
    #[error("{axes}={size} does not divide {dimension} = {value}; try {axes}={}", join_or(possible))]
    Indivisible {
        /// The axis (or product of axes, `x*y`) that cuts.
        axes: String,
        /// Its size.
        size: usize,
        /// What is cut.
        dimension: String,
        /// Its value.
        value: usize,
        /// Sizes near the wanted one that would divide.
        possible: Vec<usize>,
    },
    /// A layout breaks a rule.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// A name is not among the known ones.
    #[error("unknown {what} '{name}'{}; known: {}", did_you_mean(name, known.iter().map(String::as_str)), known.join(", "))]
    Unknown {
        /// What kind of name.
        what: &'static str,
        /// The name as given.
        name: String,
        /// All that would have been accepted.
        known: Vec<String>,
    },
    /// A text could not be read as what it should be.
    #[error("cannot read {what} from '{text}': {reason}")]
    Syntax {
        /// What was expected.
        what: &'static str,
        /// The text as given.
        text: String,
        /// Why it does not fit, with an example.
        reason: String,
    },
    /// A text without anything in it where something is needed.
    #[error("cannot read {what}: there is nothing in it; {reason}")]
    Empty {
        /// What was expected.
        what: &'static str,
        /// What is missed first.
        reason: String,
    },
    /// A text is no such number; who reads it says what it is of.
    #[error("it is {rule}; {remedy}")]
    Number {
        /// What it has to be: a whole number, one of a range.
        rule: String,
        /// An example, or the next number that is one.
        remedy: String,
    },
    /// Every grid of that many ranks breaks a rule.
    #[error("no legal grid of {ranks} ranks for {model}: {reason}; {}", other_ranks(nearest))]
    NoLegalGrid {
        /// The wanted number of ranks.
        ranks: usize,
        /// The model's name.
        model: String,
        /// The rule that refused most grids, with an example.
        reason: String,
        /// The rank counts next below and above that have a legal grid.
        nearest: Vec<usize>,
    },
}

impl SpecError {
    /// Shorthand for [`SpecError::Invalid`].
    pub fn invalid(
        field: impl Into<String>,
        value: impl ToString,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let value = shortened(value.to_string());
        Self::Invalid { field: field.into(), value, rule: rule.into(), remedy: remedy.into() }
    }

    /// [`SpecError::Indivisible`] if `size` does not divide `value`, with the nearest divisors as remedy.
    pub fn check_divides(axes: &str, size: usize, dimension: &str, value: usize) -> Result<(), Self> {
        Self::check_divides_all(axes, size, &[(dimension, value)])
    }

    /// [`SpecError::Indivisible`] for the first of several dimensions (name, value) that `size` does not divide. The
    /// remedies divide all of them.
    pub fn check_divides_all(axes: &str, size: usize, dimensions: &[(&str, usize)]) -> Result<(), Self> {
        let Some((dimension, value)) = first_indivisible(size, dimensions) else { return Ok(()) };
        let possible = nearest_divisors(common_divisor(dimensions), size);
        Err(Self::Indivisible { axes: axes.to_owned(), size, dimension: dimension.to_owned(), value, possible })
    }
}

/// A number with its exponent where it would be as long as a sentence.
pub(crate) fn shortened(value: String) -> String {
    match value.parse::<f64>() {
        Ok(number) if value.len() > 24 => format!("{number:e}"),
        _ => value,
    }
}

/// The first of several dimensions (name, value) that `size` does not divide.
pub(crate) fn first_indivisible<'a>(size: usize, dimensions: &[(&'a str, usize)]) -> Option<(&'a str, usize)> {
    dimensions.iter().copied().find(|(_, value)| size == 0 || !value.is_multiple_of(size))
}

/// What divides all of several dimensions (name, value).
pub(crate) fn common_divisor(dimensions: &[(&str, usize)]) -> usize {
    dimensions.iter().fold(0, |common, (_, value)| greatest_common_divisor(common, *value))
}

/// Of 0 and any number it is that number.
pub(crate) fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The divisors of `value` next below and next above `wanted`: the remedy of a size that does not divide.
pub fn nearest_divisors(value: usize, wanted: usize) -> Vec<usize> {
    let below = (1..wanted.min(value.saturating_add(1))).rev().find(|d| value.is_multiple_of(*d));
    let above = (wanted.saturating_add(1)..=value).find(|d| value.is_multiple_of(*d));
    below.into_iter().chain(above).collect()
}

/// "2 or 4", "1", for messages.
fn join_or(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
}

/// What to do where no grid is legal.
fn other_ranks(nearest: &[usize]) -> String {
    match nearest {
        [] => "no other number of ranks helps: change batch, sequence length or node size".to_owned(),
        [one] => format!("the nearest number of ranks with a legal grid is {one}"),
        counts => {
            let counts: Vec<_> = counts.iter().map(usize::to_string).collect();
            format!("the nearest numbers of ranks with a legal grid are {}", counts.join(" and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_divisors_surround_what_was_wanted() {
        let cases = [(12, 5, vec![4, 6]), (12, 1, vec![2]), (12, 40, vec![12]), (7, 0, vec![1])];
        for (value, wanted, nearest) in cases {
            assert_eq!(nearest_divisors(value, wanted), nearest, "{wanted} of {value}");
        }
        assert_eq!(nearest_divisors(12, usize::MAX), [12]);
    }

    #[test]
    fn remedies_divide_every_dimension() {
        let refusal = SpecError::check_divides_all("z", 5, &[("a", 24), ("b", 36)]).unwrap_err().to_string();
        assert_eq!(refusal, "z=5 does not divide a = 24; try z=4 or 6");
        assert_eq!(SpecError::check_divides_all("z", 4, &[("a", 24), ("b", 36)]), Ok(()));
    }
}
