//! Tables as comma-separated values.

use crate::ReportError;

/// Rows of equal length as text, the header first.
///
/// # Errors
/// Rows of different lengths.
pub fn csv(rows: impl IntoIterator<Item = Vec<String>>) -> Result<String, ReportError> {
    let failed = |error: &dyn std::fmt::Display| ReportError::Table(error.to_string());
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows.into_iter().try_for_each(|row| writer.write_record(row)).map_err(|error| failed(&error))?;
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 2]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn cells_with_commas_are_quoted_and_rows_are_equally_long() {
        let table = csv([row(["grid", "seconds"]), row(["x=2,y=2", "0.5"])]).unwrap();
        assert_eq!(table, "grid,seconds\n\"x=2,y=2\",0.5\n");
        let short = csv([row(["grid", "seconds"]), vec!["x=2".to_owned()]]).unwrap_err().to_string();
        assert!(short.starts_with("cannot write the table: "), "{short}");
    }
}
