//! Tables as text.

/// Rows under a header, columns as wide as their widest cell; the first column to the left, others to the right. Cells that a
/// row lacks are empty.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> = (0..header.len())
        .map(|at| rows.iter().map(|row| cell(row, at)).max().unwrap_or(0).max(header[at].chars().count()))
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(header.to_vec())).chain(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a long name".to_owned(), "1".to_owned()], vec!["µ".to_owned()]];
        assert_eq!(table(&["name", "count"], &rows), "name         count\na long name      1\nµ\n");
    }
}
