//! How text is shown: as wide as it is, or fitted to a terminal; with or without colours.

use anstyle::{AnsiColor, Style as Paint};

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
        match self.color && !text.is_empty() {
            true => format!("{paint}{text}{paint:#}"),
            false => text.to_owned(),
        }
    }

    /// Lines that are not longer than the terminal is wide, broken between words; what is behind a label of the line, or its
    /// indentation, goes on in the same column. Longer words stay whole.
    pub fn wrapped(&self, text: &str) -> String {
        let Some(width) = self.width else { return text.to_owned() };
        text.split_inclusive('\n').map(|line| broken(line, width)).collect()
    }
}

/// A label before two spaces that starts a line is at most so long.
const LABEL: usize = 20;

/// A line in pieces that fit.
fn broken(line: &str, width: usize) -> String {
    let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
    if length(body) <= width {
        return line.to_owned();
    }
    words(body, width, hanging(body, width), LongWords::Whole).join("\n") + end
}

/// The column in which a line goes on.
fn hanging(line: &str, width: usize) -> usize {
    let indent = length(line) - length(line.trim_start());
    let label = line[indent..].find("  ").filter(|at| *at <= LABEL).map(|at| {
        let behind = &line[indent + at..];
        indent + length(&line[indent..indent + at]) + length(behind) - length(behind.trim_start())
    });
    let hanging = label.unwrap_or(if indent > 0 { indent + 2 } else { 0 });
    if 2 * hanging > width { 0 } else { hanging }
}

/// Whether what is longer than a line is broken anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongWords {
    /// They stay whole, as paths do that are copied; but behind commas.
    Whole,
    /// Nothing is longer than a line.
    Broken,
}

/// The words of a text in lines of at most `width` characters, those behind the first indented; the spaces inside of a line
/// stay as they are.
pub(crate) fn words(text: &str, width: usize, hanging: usize, long: LongWords) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut fresh = true;
    for word in text.split_inclusive(' ').flat_map(|word| pieces(word, width.saturating_sub(hanging), long)) {
        if !fresh && length(&line) + length(word.trim_end()) > width {
            lines.push(line.trim_end().to_owned());
            line = " ".repeat(hanging);
        }
        line += word;
        fresh = fresh && word.trim().is_empty();
    }
    lines.push(line.trim_end().to_owned());
    lines
}

fn pieces(word: &str, width: usize, long: LongWords) -> Vec<&str> {
    let fits = |piece: &str| length(piece.trim_end()) <= width;
    if fits(word) {
        return vec![word];
    }
    let mut pieces = Vec::new();
    for piece in word.split_inclusive(',') {
        let mut rest = piece;
        while long == LongWords::Broken && width > 0 && !fits(rest) {
            let at = rest.char_indices().nth(width).map_or(rest.len(), |(at, _)| at);
            pieces.push(&rest[..at]);
            rest = &rest[at..];
        }
        pieces.push(rest);
    }
    pieces
}

/// The number of characters.
pub(crate) fn length(text: &str) -> usize {
    text.chars().count()
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
