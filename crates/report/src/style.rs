//! How text is shown: as wide as it is, or fitted to a terminal; with or without colours.

use anstyle::{AnsiColor, Style as Paint};

use quadrille_step::wrap::wrapped;

/// How text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; `None`: nothing is fitted, every line and every column of a table is shown in full.
    pub width: Option<usize>,
    /// Whether headings, warnings and marked rows have colours. They mean nothing that words do not say.
    pub color: bool,
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The name of what follows.
    Heading,
    /// What is to be minded.
    Warning,
    /// Why there is no result.
    Error,
    /// A row that is advised.
    Marked,
    /// What matters little.
    Aside,
}

impl Style {
    /// Everything in full, without colours: for files and other programs.
    pub const FULL: Self = Self { width: None, color: false };

    /// A piece of text of one line as it is shown.
    pub fn paint(&self, role: Role, text: &str) -> String {
        let paint = match role {
            Role::Heading => Paint::new().bold(),
            Role::Warning => AnsiColor::Yellow.on_default().bold(),
            Role::Error => AnsiColor::Red.on_default().bold(),
            Role::Marked => AnsiColor::Green.on_default().bold(),
            Role::Aside => Paint::new().dimmed(),
        };
        if self.color && !text.is_empty() { format!("{paint}{text}{paint:#}") } else { text.to_owned() }
    }

    /// Lines that are not longer than the terminal is wide, broken between words; what is behind a label of the line, or its
    /// indentation, goes on in the same column. Longer words stay whole.
    pub fn wrapped(&self, text: &str) -> String {
        self.width.map_or_else(|| text.to_owned(), |width| wrapped(text, width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Style = Style { width: Some(20), color: false };

    #[test]
    fn lines_are_broken_between_words_and_go_on_in_their_column() {
        for (text, shown) in [
            ("short\n", "short\n"),
            ("one two three four five six\n", "one two three four\nfive six\n"),
            ("  one two three four five\n", "  one two three four\n    five\n"),
            ("model   gpt-demo: three layers\n", "model   gpt-demo:\n        three layers\n"),
            ("a/very/long/path/that/stays/whole is", "a/very/long/path/that/stays/whole\nis"),
            ("{\"one\":1,\"two\":2,\"three\":3}", "{\"one\":1,\"two\":2,\n\"three\":3}"),
        ] {
            assert_eq!(NARROW.wrapped(text), shown);
            assert_eq!(Style::FULL.wrapped(text), text);
        }
    }

    #[test]
    fn colours_are_around_the_text() {
        let colored = Style { width: None, color: true };
        assert_eq!(colored.paint(Role::Heading, "grid"), "\u{1b}[1mgrid\u{1b}[0m");
        assert_eq!(Style::FULL.paint(Role::Error, "error"), "error");
    }
}
