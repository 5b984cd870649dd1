//! Priced layouts as rows of comma-separated values.

use quadrille_run::units::shortest;
use serde_json::Value;

use super::{PlanReport, PricedLayout};
use crate::ReportError;

/// Columns of an error band, which every row has.
const BAND: [&str; 4] = ["error_band_low", "error_band_middle", "error_band_high", "error_band_reason"];

/// Header and rows of comma-separated values: of the ranking, or of the front if the plan has one, a layout a row.
///
/// # Errors
/// A layout that is no object of JSON, which none is.
pub fn rows(report: &PlanReport) -> Result<Vec<Vec<String>>, ReportError> {
    let shown = report.pareto.as_ref().unwrap_or(&report.plans);
    let rows = shown.iter().map(columns).collect::<Result<Vec<_>, _>>()?;
    let names = names(&rows);
    let rows: Vec<_> = rows.iter().map(|row| values_of(&names, row)).collect();
    Ok((!names.is_empty()).then_some(names).into_iter().chain(rows).collect())
}

/// Names of the columns of some rows, each once: layouts with SUMMA, or with groups of microbatches, have one more.
pub(crate) fn names(rows: &[Vec<(String, String)>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Values of a row in these columns, empty where it has none.
pub(crate) fn values_of(names: &[String], row: &[(String, String)]) -> Vec<String> {
    let cell = |name: &String| row.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    names.iter().map(|name| cell(name).unwrap_or_default()).collect()
}

/// Fields of a layout's document as named columns of text; lists with spaces between their values.
///
/// # Errors
/// A layout that is no object of JSON, which none is.
pub(crate) fn columns(layout: &PricedLayout) -> Result<Vec<(String, String)>, ReportError> {
    // Rows are of layouts alone, and not of the search that found them.
    let layout = PricedLayout { variants: None, drawing: None, ..layout.clone() };
    let document = serde_json::to_value(layout).map_err(|error| ReportError::Table(error.to_string()))?;
    let mut found = Vec::new();
    flatten("", &document, &mut found);
    for name in BAND {
        if found.iter().all(|(known, _)| known != name) {
            found.push((name.to_owned(), String::new()));
        }
    }
    Ok(found)
}

fn flatten(name: &str, value: &Value, columns: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Object(fields) => {
            let prefix = if matches!(name, "" | "layout") { String::new() } else { format!("{name}_") };
            fields.iter().for_each(|(field, value)| flatten(&format!("{prefix}{field}"), value, columns));
            return;
        }
        // A column that only some rows have.
        Value::Null => return,
        Value::Array(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
        Value::String(text) => text.clone(),
        Value::Number(number) => number
            .as_u64()
            .map_or_else(|| number.as_f64().map_or_else(String::new, shortest), |whole| whole.to_string()),
        other => other.to_string(),
    };
    columns.push((name.to_owned(), text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_other_columns_are_of_one_table() {
        let row = |columns: &[(&str, &str)]| -> Vec<(String, String)> {
            columns.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let rows = [row(&[("a", "1"), ("c", "2")]), row(&[("a", "3"), ("b", "4"), ("c", "5")])];
        let names = names(&rows);
        assert_eq!(names, ["a", "c", "b"]);
        assert_eq!(rows.map(|row| values_of(&names, &row)), [["1", "2", ""], ["3", "5", "4"]]);
    }
}
