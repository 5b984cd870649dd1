//! Turns TOML text into typed files, and its errors into this crate's.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::SpecError;
use crate::error::shortened;
use crate::nearest_name::meant_in_message;

/// So many whole numbers of a text may be written as others are: each is read anew.
const MOST_WITH_EXPONENTS: usize = 100;

/// Reads `text` as a `what` ("a model", "a cluster"). Some whole numbers may be written as others are: `80e9`.
///
/// # Errors
/// Text that is no TOML or no such thing; the message names the line and what was expected there.
pub fn read<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, SpecError> {
    let mut text = Cow::Borrowed(text);
    let mut left = MOST_WITH_EXPONENTS;
    loop {
        let error = match toml::from_str(&text) {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        match in_digits(&text, &error).filter(|_| left > 0) {
            Some(digits) => text = Cow::Owned(digits),
            None => return Err(refused(what, &text, &error)),
        }
        left -= 1;
    }
}

/// The text with digits for a number like `80e9`, where it is whole, a whole one was expected, and no digit is lost.
fn in_digits(text: &str, error: &toml::de::Error) -> Option<String> {
    let (found, wanted) = error.message().trim().split_once(", expected ")?;
    let place =
        error.span().filter(|_| found.starts_with("invalid type: floating point") && WHOLE.contains(&wanted))?;
    let number: f64 = text.get(place.clone())?.replace('_', "").parse().ok()?;
    let is_exact = number.fract() == 0.0 && (0.0..=MOST_EXACT).contains(&number);
    is_exact.then(|| format!("{}{}{}", &text[..place.start], number as u64, &text[place.end..]))
}

/// What whole numbers are called in messages of the reader.
const WHOLE: [&str; 5] = ["u8", "u16", "u32", "u64", "usize"];

/// Up to here every whole number is one of 64 bits with an exponent, too.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Why it cannot be read.
fn refused(what: &'static str, text: &str, error: &toml::de::Error) -> SpecError {
    let place = error.span().and_then(|span| text.get(..span.start));
    let number = place.map_or(1, |before| before.matches('\n').count() + 1);
    // Long lines (or a binary file taken for a description) are cut: the number finds them.
    let line = text.lines().nth(number - 1).unwrap_or_default().chars().take(80).collect();
    let message = error.message().trim();
    if text.trim().is_empty() {
        return SpecError::Empty { what, reason: message.to_owned() };
    }
    let meant = meant_in_message(message);
    SpecError::Syntax { what, text: line, reason: format!("line {number}: {}{meant}", worded(message)) }
}

/// The reader's message without the names of types, and with few digits.
fn worded(message: &str) -> String {
    if message == "wanted string or table" {
        return "expected a word in quotes".to_owned();
    }
    let parts = message.strip_prefix("invalid ").and_then(|message| message.split_once(", expected "));
    let Some((found, wanted)) = parts else { return message.to_owned() };
    let wanted = match wanted {
        whole if WHOLE.contains(&whole) => "a whole number, e.g. 8",
        "f32" | "f64" => "a number, e.g. 0.5",
        "a boolean" => "true or false",
        "a string" => "text in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        table if table.starts_with("struct ") => "a table",
        table if table.starts_with("internally tagged enum ") => "a table that says its kind",
        other => other,
    };
    let found = found.replace("floating point", "number");
    let found: Vec<String> = found.split('`').map(|part| shortened(part.to_owned())).collect();
    format!("invalid {}, expected {wanted}", found.join("`"))
}

/// Writes `value`, a `what` called `name`.
///
/// # Errors
/// Values that TOML cannot hold.
pub(crate) fn write(what: &'static str, name: &str, value: &impl Serialize) -> Result<String, SpecError> {
    toml::to_string(value).map_err(|error| SpecError::Syntax {
        what,
        text: name.to_owned(),
        reason: format!("it cannot be written as TOML: {error}"),
    })
}

/// Refuses names that a report could not print on one line.
///
/// # Errors
/// No or more than 100 characters, or such that cannot be printed.
pub fn check_name(name: &str) -> Result<(), SpecError> {
    if !name.is_empty() && name.chars().count() <= 100 && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let shown: String = name.chars().take(100).collect();
    let rule = "a name has 1 to 100 printable characters";
    Err(SpecError::invalid("name", format!("{shown:?}"), rule, "give it one, e.g. name = \"my-gpt\""))
}

/// Refuses whole numbers outside `1..=most`; the upper limits keep all arithmetic far from overflow.
pub(crate) fn check_size(field: &str, value: usize, most: usize) -> Result<(), SpecError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    let remedy = if value == 0 { "give a positive number" } else { "use a smaller one" };
    Err(SpecError::invalid(field, value, format!("it must lie in 1..={most}"), remedy))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn whole_numbers_may_have_an_exponent() {
        let read = |text| read::<BTreeMap<String, u64>>("numbers", text);
        let numbers = read("a = 80e9\nb = 1_0.0 # ten\nc = 7\nd = 9_007_199_254_740_992.0").unwrap();
        assert_eq!(numbers.into_values().collect::<Vec<_>>(), [80_000_000_000, 10, 7, 1 << 53]);
        for (text, words) in [
            ("a = 1\nb = 1.5", "line 2: invalid type: number `1.5`, expected a whole number"),
            ("a = -2.0", "number `-2.0`, expected a whole number"),
            ("a = 1e308", "number `1e308`, expected a whole number"),
            ("a = nan", "expected a whole number"),
            ("a = -2", "integer `-2`, expected a whole number"),
            ("a = '2'", "string \"2\", expected a whole number"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(words), "{words}: {message}");
        }
    }

    #[test]
    fn a_text_is_not_read_anew_for_ever() {
        let list = |numbers: usize| format!("a = [{}]", vec!["1.0"; numbers].join(", "));
        let read = |numbers| read::<BTreeMap<String, Vec<u64>>>("numbers", &list(numbers));
        assert_eq!(read(MOST_WITH_EXPONENTS).unwrap()["a"], vec![1; MOST_WITH_EXPONENTS]);
        let refused = read(MOST_WITH_EXPONENTS + 1).unwrap_err().to_string();
        assert!(refused.contains("number `1.0`, expected a whole number"), "{refused}");
    }

    #[test]
    fn names_of_types_are_told_in_words() {
        for (message, words) in [
            ("invalid type: integer `3`, expected a boolean", "invalid type: integer `3`, expected true or false"),
            ("invalid type: sequence, expected f64", "invalid type: sequence, expected a number, e.g. 0.5"),
            (
                "invalid type: floating point `3.0`, expected struct Peaks",
                "invalid type: number `3.0`, expected a table",
            ),
            ("wanted string or table", "expected a word in quotes"),
            ("unknown field `a`, expected `b`", "unknown field `a`, expected `b`"),
        ] {
            assert_eq!(worded(message), words);
        }
    }
}
