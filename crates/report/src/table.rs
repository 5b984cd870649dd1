//! Tables that fit a terminal.

use crate::plain::plain;
use crate::style::{Role, Style};
use quadrille_step::wrap::{LongWords, columns as columns_of, padded, words};

/// Between columns.
const GAP: &str = "  ";
/// Before the second line of a row.
const INDENT: usize = 4;
/// A first column is not made narrower than this by breaking its cells.
const LEAST: usize = 24;
/// Before what goes on of a broken cell.
const HANGING: usize = 2;
/// Lines of a row, at most, before a narrow terminal breaks them.
const LINES: usize = 6;

/// Rows under a header. The first column is set to the left, others to the right; cells that a row lacks are empty.
///
/// Where a terminal is too narrow, words of headers are set below each other; if that is not enough, columns that say nothing and
/// then [spare](Self::spare) ones are left out, and if that is not enough, rows have two lines or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Indices of columns, the first to be left out first.
    spare: Vec<usize>,
    marked: Option<usize>,
}

/// Rows under a header.
pub fn table<H: AsRef<str>>(header: &[H], rows: &[Vec<String>]) -> Table {
    let mut cells: Vec<Vec<String>> = Vec::new();
    for row in rows {
        cells.push(
            (0..header.len()).map(|at| row.get(at).map_or_else(String::new, |cell| plain(cell).into())).collect(),
        );
    }
    let header = header.iter().map(|name| plain(name.as_ref()).into()).collect();
    Table { header, rows: cells, spare: Vec::new(), marked: None }
}

/// Columns side by side: their indices and widths.
type Line = Vec<(usize, usize)>;

impl Table {
    /// The same with columns that a narrow terminal goes without, the first named first.
    #[must_use]
    pub fn spare(self, names: &[&str]) -> Self {
        let at = |name: &&str| self.header.iter().position(|known| known == name);
        let spare = names.iter().filter_map(at).collect();
        Self { spare, ..self }
    }

    /// The same with a row that stands out.
    #[must_use]
    pub fn marked(self, row: Option<usize>) -> Self {
        Self { marked: row, ..self }
    }

    /// The table as it is shown.
    pub fn shown(&self, style: Style) -> String {
        let every: Vec<usize> = (0..self.header.len()).collect();
        let full = vec![self.natural(&every, false)];
        let Some(width) = style.width.filter(|width| !fits(&full, *width)) else { return self.drawn(&full, style) };
        let droppable = self.droppable();
        let without = |dropped: usize| -> Vec<usize> {
            every.iter().copied().filter(|at| !droppable[..dropped].contains(at)).collect()
        };
        let fewer = (0..=droppable.len()).find(|dropped| fits(&[self.natural(&without(*dropped), true)], width));
        if let Some(dropped) = fewer {
            let lines = [self.natural(&without(dropped), true)];
            return self.drawn(&lines, style) + &self.left_out(&droppable[..dropped], width, style);
        }
        let (lines, dropped) = self.several(&droppable, without, width);
        self.drawn(&lines, style) + &self.left_out(&droppable[..dropped], width, style)
    }

    /// Columns on the fewest lines a row that fit, and how many are left out; or the first column narrower, with its cells broken,
    /// where this takes fewer lines.
    fn several(&self, droppable: &[usize], without: impl Fn(usize) -> Vec<usize>, width: usize) -> (Vec<Line>, usize) {
        let folded = (2..=LINES).find_map(|lines| {
            (0..=droppable.len()).find_map(|dropped| Some((self.folded(&without(dropped), lines, width)?, dropped)))
        });
        let broken = self.broken(&without(droppable.len()), width).map(|line| (vec![line], droppable.len()));
        let height = |(lines, _): &(Vec<Line>, usize)| self.height(lines);
        let least = [folded, broken].into_iter().flatten().min_by_key(height);
        least.unwrap_or_else(|| {
            let every = without(0);
            let line =
                |at: &usize| vec![(*at, self.natural(&[*at], true)[0].1.min(width.saturating_sub(INDENT)).max(1))];
            (every.iter().map(line).collect(), 0)
        })
    }

    /// Columns that can be left out, the first ones first: those that say nothing, then the spare ones.
    fn droppable(&self) -> Vec<usize> {
        let says_nothing = |at: &usize| self.rows.iter().all(|row| matches!(row[*at].as_str(), "" | "-"));
        let empty: Vec<usize> = (1..self.header.len()).filter(says_nothing).collect();
        let spare = self.spare.iter().copied().filter(|at| !empty.contains(at));
        empty.iter().copied().chain(spare).collect()
    }

    /// Columns as wide as their cells, and as their header or the longest of its words.
    fn natural(&self, columns: &[usize], stacked: bool) -> Line {
        let width = |at: usize| {
            let name = &self.header[at];
            let header = if stacked { name.split(' ').map(columns_of).max().unwrap_or(0) } else { columns_of(name) };
            self.rows.iter().map(|row| columns_of(&row[at])).max().unwrap_or(0).max(header)
        };
        columns.iter().map(|at| (*at, width(*at))).collect()
    }

    /// Columns on at most so many lines, as many as fit on each.
    fn folded(&self, columns: &[usize], most: usize, width: usize) -> Option<Vec<Line>> {
        let mut lines = vec![Vec::new()];
        for column in self.natural(columns, true) {
            let indent = if lines.len() == 1 { 0 } else { INDENT };
            let line = lines.last_mut()?;
            line.push(column);
            if indent + across(line) > width {
                line.pop().filter(|_| !line.is_empty())?;
                lines.push(vec![column]);
                if INDENT + column.1 > width {
                    return None;
                }
            }
        }
        (lines.len() <= most).then_some(lines)
    }

    /// Columns on one line with a first one that is made narrower.
    fn broken(&self, columns: &[usize], width: usize) -> Option<Line> {
        let mut line = self.natural(columns, true);
        let rest = across(&line) - line.first()?.1;
        let first = width.checked_sub(rest).filter(|first| *first >= LEAST)?;
        line[0].1 = first;
        Some(line)
    }

    /// How many lines all rows take.
    fn height(&self, lines: &[Line]) -> usize {
        let cell = |row: &Vec<String>, (at, width): &(usize, usize)| {
            words(&row[*at], *width, HANGING, LongWords::Broken).len()
        };
        let high = |row: &Vec<String>, line: &Line| line.iter().map(|column| cell(row, column)).max().unwrap_or(1);
        self.rows.iter().map(|row| lines.iter().map(|line| high(row, line)).sum::<usize>()).sum()
    }

    /// The header, its words below each other where columns are narrower, then the rows, each on all of the lines.
    fn drawn(&self, lines: &[Line], style: Style) -> String {
        let header = drawn(&self.header, lines, true);
        let mut text: String = header.iter().map(|line| style.paint(Role::Heading, line) + "\n").collect();
        for (at, row) in self.rows.iter().enumerate() {
            for line in drawn(row, lines, false) {
                let line = if self.marked == Some(at) { style.paint(Role::Marked, &line) } else { line };
                text += &(line + "\n");
            }
        }
        text
    }

    /// Names of the columns that are not shown.
    fn left_out(&self, dropped: &[usize], width: usize, style: Style) -> String {
        if dropped.is_empty() {
            return String::new();
        }
        let names = dropped.iter().map(|at| self.header[*at].as_str()).collect::<Vec<_>>().join(", ");
        let note = style.wrapped(&format!("(not shown in {width} columns: {names})"));
        note.lines().map(|line| style.paint(Role::Aside, line) + "\n").collect()
    }
}

/// The width of columns side by side.
fn across(line: &[(usize, usize)]) -> usize {
    line.iter().map(|(_, width)| width).sum::<usize>() + GAP.len() * line.len().saturating_sub(1)
}

fn fits(lines: &[Line], width: usize) -> bool {
    lines.iter().all(|line| across(line) <= width)
}

/// The cells of a row on its lines, those of a header at the bottom of theirs.
fn drawn(cells: &[String], lines: &[Line], is_header: bool) -> Vec<String> {
    let mut drawn = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let hanging = |at| if at == 0 && !is_header { HANGING } else { 0 };
        let broken: Vec<Vec<String>> =
            line.iter().map(|(at, width)| words(&cells[*at], *width, hanging(*at), LongWords::Broken)).collect();
        let indent = " ".repeat(if number == 0 { 0 } else { INDENT });
        let high = broken.iter().map(Vec::len).max().unwrap_or(0);
        for level in 0..high {
            let padded = line.iter().zip(&broken).map(|((at, width), parts)| {
                let above = if is_header { high - parts.len() } else { 0 };
                let part = level.checked_sub(above).and_then(|level| parts.get(level)).map_or("", String::as_str);
                padded(part, *width, *at > 0)
            });
            drawn.push((indent.clone() + &padded.collect::<Vec<_>>().join(GAP)).trim_end().to_owned());
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 5] = ["grid", "measured place", "none", "time", "share"];

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
        vec![row(["x=2", "1", "-", "25.3 ms", "10%"]), row(["pipe=2 1f1b", "2", "-", "9 s", "5%"])]
    }

    fn shown(width: usize) -> String {
        table(&HEADER, &rows()).spare(&["share"]).marked(Some(1)).shown(Style { width: Some(width), color: false })
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let wide = [vec!["模型".to_owned(), "1".to_owned()], vec!["a".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["name", "n"], &wide).shown(Style::FULL), "name   n\n模型   1\na     22\n");
        let rows = [vec!["a long name".to_owned(), "1".to_owned()], vec!["µ".to_owned()]];
        let full = "name         count\na long name      1\nµ\n";
        assert_eq!(table(&["name", "count"], &rows).shown(Style::FULL), full);
        assert_eq!(table(&["name", "count"], &rows).shown(Style { width: Some(18), color: false }), full);
    }

    #[test]
    fn a_narrow_table_sets_headers_below_each_other_then_goes_without_columns_then_takes_two_lines_a_row() {
        assert_eq!(shown(49), table(&HEADER, &rows()).shown(Style::FULL));
        let lines = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let stacked = [
            "             measured",
            "grid            place  none     time  share",
            "x=2                 1     -  25.3 ms    10%",
            "pipe=2 1f1b         2     -      9 s     5%",
        ];
        assert_eq!(shown(43), lines(&stacked));
        let without_empty = [
            "             measured",
            "grid            place     time  share",
            "x=2                 1  25.3 ms    10%",
            "pipe=2 1f1b         2      9 s     5%",
            "(not shown in 40 columns: none)",
        ];
        assert_eq!(shown(40), lines(&without_empty));
        assert!(shown(32).contains("grid            place     time\n"), "{}", shown(32));
        assert!(shown(32).ends_with("(not shown in 32 columns: none,\nshare)\n"), "{}", shown(32));
        let folded = [
            "             measured",
            "grid            place",
            "    none     time  share",
            "x=2                 1",
            "       -  25.3 ms    10%",
            "pipe=2 1f1b         2",
            "       -      9 s     5%",
        ];
        assert_eq!(shown(25), lines(&folded));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_however_narrow_it_is() {
        let long = ["words ".repeat(40), "without_spaces".repeat(9), "x".to_owned()];
        let long = long.map(|cell| vec![cell, "25".to_owned()]);
        for width in 12..120 {
            let lines =
                shown(width) + &table(&["reason", "rows"], &long).shown(Style { width: Some(width), color: false });
            let widest = lines.lines().map(columns_of).max();
            assert!(widest <= Some(width.max(20)), "{width}: {lines}");
        }
    }

    #[test]
    fn a_marked_row_and_the_header_stand_out() {
        let shown = table(&HEADER, &rows()).marked(Some(1)).shown(Style { width: None, color: true });
        let lines: Vec<&str> = shown.lines().collect();
        let [header, plain, marked] = lines[..] else { panic!("{shown:?}") };
        assert!(header.starts_with("\u{1b}[1m") && marked.starts_with("\u{1b}[1m\u{1b}[32m"), "{shown:?}");
        assert!(!plain.contains('\u{1b}') && marked.ends_with("\u{1b}[0m"), "{shown:?}");
    }
}
