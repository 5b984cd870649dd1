//! Text in columns: lines that fit a terminal. Programs are printed so, and all other text for people.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A label before two spaces that starts a line is at most so long.
const LABEL: usize = 20;

/// Lines that are not wider than so many columns, broken between words; what is behind a label of the line, or its indentation, goes on
/// in the same column. Longer words stay whole.
pub fn wrapped(text: &str, width: usize) -> String {
    text.split_inclusive('\n').map(|line| broken(line, width)).collect()
}

/// A line in pieces that fit.
fn broken(line: &str, width: usize) -> String {
    let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
    if columns(body) <= width {
        return line.to_owned();
    }
    words(body, width, hanging(body, width), LongWords::Whole).join("\n") + end
}

/// The column in which a line goes on.
fn hanging(line: &str, width: usize) -> usize {
    let (spaces, rest) = line.split_at(line.len() - line.trim_start().len());
    let indent = columns(spaces);
    let label = rest.find("  ").filter(|at| *at <= LABEL).map(|at| {
        let behind = &rest[at..];
        indent + columns(&rest[..at]) + columns(behind) - columns(behind.trim_start())
    });
    let hanging = label.unwrap_or(if indent > 0 { indent + 2 } else { 0 });
    if 2 * hanging > width { 0 } else { hanging }
}

/// Lines that are not wider than so many columns, broken between words; all but the first of a line begin with so many spaces. Longer
/// words stay whole.
pub fn hung(text: &str, width: usize, hanging: usize) -> String {
    text.lines().map(|line| words(line, width, hanging, LongWords::Whole).join("\n") + "\n").collect()
}

/// Whether what is longer than a line is broken anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongWords {
    /// They stay whole, as paths do that are copied; but behind commas.
    Whole,
    /// Nothing is longer than a line.
    Broken,
}

/// The words of a text in lines of at most `width` columns, those behind the first indented; the spaces inside of a line
/// stay as they are.
pub fn words(text: &str, width: usize, hanging: usize, long: LongWords) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut fresh = true;
    for word in text.split_inclusive(' ').flat_map(|word| pieces(word, width.saturating_sub(hanging), long)) {
        if !fresh && columns(&line) + columns(word.trim_end()) > width {
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
    let fits = |piece: &str| columns(piece.trim_end()) <= width;
    if fits(word) {
        return vec![word];
    }
    let mut pieces = Vec::new();
    for piece in word.split_inclusive(',') {
        let mut rest = piece;
        while long == LongWords::Broken && width > 0 && !fits(rest) && rest.chars().nth(1).is_some() {
            let at = beginning(rest, width);
            pieces.push(&rest[..at]);
            rest = &rest[at..];
        }
        pieces.push(rest);
    }
    pieces
}

/// The columns that text takes in a terminal: wide characters, as Chinese has them, take two.
pub fn columns(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Text with spaces up to so many columns, on its right, or on its left with `right`.
pub fn padded(text: &str, width: usize, right: bool) -> String {
    let spaces = " ".repeat(width.saturating_sub(columns(text)));
    if right { spaces + text } else { text.to_owned() + &spaces }
}

/// As much of the beginning as so many columns have room for, at least a character.
fn beginning(text: &str, width: usize) -> usize {
    let mut taken = 0;
    let is_over = |(at, c): &(usize, char)| {
        taken += UnicodeWidthChar::width(*c).unwrap_or(0);
        taken > width && *at > 0
    };
    text.char_indices().find(is_over).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_on_in_the_column_that_is_said() {
        let text = "      why: one two three\nF0 F1 B0 B1 F2\n\nlonger_than_a_line x";
        let broken = "      why:\n      one two\n      three\nF0 F1 B0 B1\n      F2\n\nlonger_than_a_line\n      x\n";
        assert_eq!(hung(text, 13, 6), broken);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!((columns("µ-tuned"), columns("モデル"), padded("模型", 6, true).as_str()), (7, 6, "  模型"));
        assert_eq!(words("模型模型模型", 5, 0, LongWords::Broken), ["模型", "模型", "模型"]);
        assert_eq!(words("模型", 1, 0, LongWords::Broken), ["模", "型"]);
        assert_eq!(wrapped("模型 模型 模型\n", 9), "模型 模型\n模型\n");
        assert_eq!(wrapped("\u{3000}模型 模型\n", 8), "\u{3000}模型\n    模型\n");
    }
}
