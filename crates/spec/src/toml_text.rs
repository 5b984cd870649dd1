//! Turns TOML text into typed files, and its errors into this crate's.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::SpecError;
use crate::nearest_name::meant_in_message;

/// Reads `text` as a `what` ("a model", "a cluster").
///
/// # Errors
/// Text that is no TOML or no such thing; the message names the line and what was expected there.
pub fn read<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, SpecError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let place = error.span().and_then(|span| text.get(..span.start));
        let number = place.map_or(1, |before| before.matches('\n').count() + 1);
        // Long lines (or a binary file taken for a description) are cut: the number finds them.
        let line = text.lines().nth(number - 1).unwrap_or_default().chars().take(80).collect();
        let message = error.message().trim();
        if text.trim().is_empty() {
            return SpecError::Empty { what, reason: message.to_owned() };
        }
        let meant = meant_in_message(message);
        SpecError::Syntax { what, text: line, reason: format!("line {number}: {message}{meant}") }
    })
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
