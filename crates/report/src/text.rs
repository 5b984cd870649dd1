//! Text for people: prose, headings and tables, laid out when it is shown.

use std::fmt;
use std::ops::{Add, AddAssign};

use crate::plain::plain;
use crate::style::{Role, Style};
use crate::table::Table;
use quadrille_step::wrap::columns;

/// What begins a line that is to be minded.
const WARNING: &str = "warning:";

/// Text for people, which does not know how wide the terminal is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Prose(String),
    Heading(String),
    Table(Table),
    Drawing(Vec<String>),
}

impl Text {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line that names what follows.
    pub fn heading(line: &str) -> Self {
        Self(vec![Part::Heading(line.to_owned())])
    }

    /// A drawing in several sizes, the widest first, of lines without spaces, and what is said below it: the first is shown whose lines
    /// fit, else the last.
    pub fn drawing(sizes: impl IntoIterator<Item = String>) -> Self {
        Self(vec![Part::Drawing(sizes.into_iter().collect())])
    }

    /// The text as it is shown; what it quotes of files does not act on a terminal.
    pub fn shown(&self, style: Style) -> String {
        self.0.iter().map(|part| part.shown(style)).collect()
    }

    /// The same text with another prose, e.g. of words that are called otherwise.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(&str) -> String) -> Self {
        let mut changed = |part| match part {
            Part::Prose(text) => Part::Prose(change(&text)),
            other => other,
        };
        Self(self.0.into_iter().map(&mut changed).collect())
    }
}

impl Part {
    fn shown(&self, style: Style) -> String {
        match self {
            Self::Heading(line) => format!("{}\n", style.paint(Role::Heading, style.wrapped(&plain(line)).trim_end())),
            Self::Table(table) => table.shown(style),
            Self::Prose(text) => {
                style.wrapped(&plain(text)).split_inclusive('\n').map(|line| prose(line, style)).collect()
            }
            Self::Drawing(sizes) => {
                // What is said below a drawing is broken like other text.
                let is_drawn = |line: &&str| !line.contains(' ') || line.ends_with('|');
                let fits = |text: &str, width| text.lines().filter(is_drawn).all(|line| columns(line) <= width);
                let shown = sizes.iter().find(|text| style.width.is_none_or(|width| fits(text, width)));
                style.wrapped(shown.or(sizes.last()).map_or("", String::as_str))
            }
        }
    }
}

/// A line of prose, which may begin with a warning.
fn prose(line: &str, style: Style) -> String {
    match line.strip_prefix(WARNING) {
        Some(rest) => style.paint(Role::Warning, WARNING) + rest,
        None => line.to_owned(),
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(Style::FULL))
    }
}

impl From<String> for Text {
    fn from(prose: String) -> Self {
        Self(vec![Part::Prose(prose)])
    }
}

impl From<&str> for Text {
    fn from(prose: &str) -> Self {
        prose.to_owned().into()
    }
}

impl From<Table> for Text {
    fn from(table: Table) -> Self {
        Self(vec![Part::Table(table)])
    }
}

impl<T: Into<Self>> AddAssign<T> for Text {
    fn add_assign(&mut self, more: T) {
        for part in more.into().0 {
            match (self.0.last_mut(), part) {
                // A line may be told in pieces.
                (Some(Part::Prose(text)), Part::Prose(more)) => *text += &more,
                (_, part) => self.0.push(part),
            }
        }
    }
}

impl From<&String> for Text {
    fn from(prose: &String) -> Self {
        prose.clone().into()
    }
}

impl<T: Into<Self>> Add<T> for Text {
    type Output = Self;

    fn add(mut self, more: T) -> Self {
        self += more;
        self
    }
}

impl<T: Into<Self>> FromIterator<T> for Text {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> Self {
        parts.into_iter().fold(Self::new(), |text, part| text + part)
    }
}

impl<T: Into<Self>> Extend<T> for Text {
    fn extend<I: IntoIterator<Item = T>>(&mut self, parts: I) {
        parts.into_iter().for_each(|part| *self += part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn a_text_is_its_parts_one_after_the_other() {
        let rows = [vec!["a".to_owned(), "1".to_owned()]];
        let text = Text::from("warning: one ") + "line\n" + Text::heading("names") + table(&["name", "n"], &rows);
        assert_eq!(text.to_string(), "warning: one line\nnames\nname  n\na     1\n");
        let colored = text.shown(Style { width: None, color: true });
        assert!(
            colored.starts_with("\u{1b}[1m\u{1b}[33mwarning:\u{1b}[0m one line\n\u{1b}[1mnames\u{1b}[0m\n"),
            "{colored:?}"
        );
    }

    #[test]
    fn what_files_say_does_not_act_on_a_terminal() {
        let rows = [vec!["a\u{1b}[2J".to_owned()]];
        let shown = (Text::from("\u{7}\n") + table(&["name"], &rows)).shown(Style { width: Some(80), color: false });
        assert_eq!(shown, "\\u{7}\nname\na\\u{1b}[2J\n");
    }

    #[test]
    fn a_drawing_is_as_wide_as_fits() {
        let text = Text::drawing([100, 60, 30].map(|width| "=".repeat(width)));
        let length = |width| text.shown(Style { width, color: false }).len();
        assert_eq!([None, Some(120), Some(80), Some(40), Some(20)].map(length), [100, 100, 60, 30, 30]);
    }
}
