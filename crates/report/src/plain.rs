//! Text for a terminal that may quote files: nothing in it acts on the terminal or turns what follows, and a message fits a
//! screen or two however long what it quotes is.

use std::borrow::Cow;
use std::fmt::Write;

/// Bytes of the beginning of a long message that are shown: what is wrong, and how it begins.
const BEGINNING: usize = 2000;
/// Bytes of its end: the rule and the remedy.
const END: usize = 800;

/// The text with what is not plain written as in a Rust string: `\u{1b}`.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) { escaped.push(c) } else { escaped.extend(c.escape_default()) }
    }
    Cow::Owned(escaped)
}

/// The same without the middle of what is long.
pub fn message(text: &str) -> String {
    let text = plain(text);
    if text.len() <= BEGINNING + END {
        return text.into_owned();
    }
    let boundary = |place: usize| (0..=place).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
    let first = boundary(BEGINNING);
    let last = boundary(text.len() - END);
    format!("{} ... ({} more bytes) ... {}", &text[..first], last - first, &text[last..])
}

/// A JSON document that means the same, and of whose strings nothing acts on a terminal.
pub fn json(document: &str) -> Cow<'_, str> {
    if document.chars().all(is_plain) {
        return Cow::Borrowed(document);
    }
    let mut escaped = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            // All that is not plain has at most four digits. Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(escaped)
}

/// Whether a terminal shows the character, or a line or a tab ends with it: no control character, none that turns the
/// direction of what follows, none that separates lines unseen.
fn is_plain(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let separates = matches!(c, '\u{2028}' | '\u{2029}');
    matches!(c, '\n' | '\t') || !(c.is_control() || turns || separates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_stays_and_the_rest_is_escaped() {
        let text = "naïve 漢字\n\tline";
        assert!(matches!(plain(text), Cow::Borrowed(same) if same == text));
        let wild = "a\u{1b}[2J\r\u{7}\u{9b}\u{202e}\0\u{2028}z";
        assert_eq!(plain(wild), r"a\u{1b}[2J\r\u{7}\u{9b}\u{202e}\u{0}\u{2028}z");
        let text = serde_json::to_string(wild).unwrap();
        let shown = json(&text);
        assert!(shown.chars().all(is_plain), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), wild);
    }

    #[test]
    fn a_long_message_keeps_its_beginning_and_its_end() {
        for fill in ["x", "漢", "\u{1b}"] {
            let shown = message(&format!("m.toml: name = '{}': the rule; the remedy", fill.repeat(1 << 20)));
            assert!(shown.starts_with("m.toml: name = '") && shown.ends_with("': the rule; the remedy"), "{shown}");
            assert!(shown.len() < 3000 && shown.contains(" more bytes) ... "), "{shown}");
        }
        assert_eq!(message("short\u{7}"), r"short\u{7}");
    }
}
