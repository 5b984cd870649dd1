//! What runs note in checkpoints beside what these are of: documents of any shape, as words and tables.

use serde_json::{Map, Value};

use crate::{Table, table};

/// Of longer lists of numbers and words the first ones and the last are told.
const LISTED: usize = 6;
/// Characters of a number that is told as it is.
const EXACT: usize = 9;

/// A note in words: `learning_rate 0.003, steps 2`. What it leaves open, and lists of documents, which are [tables](listed), are left
/// out; empty where nothing is left.
pub(super) fn told(note: &Value) -> String {
    match note {
        Value::Object(fields) => fields.iter().filter_map(field).collect::<Vec<_>>().join(", "),
        other => words(other).unwrap_or_default(),
    }
}

fn field((name, value): (&String, &Value)) -> Option<String> {
    if documents(value).is_some() {
        return None;
    }
    let told = words(value)?;
    Some(if value.is_object() { format!("{name} ({told})") } else { format!("{name} {told}") })
}

/// The lists of documents in a note, each by its name: a row for a document.
pub(super) fn listed(note: &Value) -> Vec<Table> {
    let fields = note.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| Some(rows(name, &documents(value)?))).collect()
}

/// A list of documents, if it is one.
fn documents(value: &Value) -> Option<Vec<&Map<String, Value>>> {
    let list = value.as_array().filter(|list| !list.is_empty())?;
    list.iter().map(Value::as_object).collect()
}

/// Columns are what any of the documents says; the first names the list.
fn rows(name: &str, documents: &[&Map<String, Value>]) -> Table {
    let mut columns: Vec<&String> = Vec::new();
    for (column, value) in documents.iter().flat_map(|document| document.iter()) {
        if words(value).is_some() && self::documents(value).is_none() && !columns.contains(&column) {
            columns.push(column);
        }
    }
    let cell = |document: &Map<String, Value>, column: &String| document.get(column).and_then(words);
    let row = |document: &&Map<String, Value>| {
        columns.iter().map(|column| cell(document, column).unwrap_or_else(|| "-".to_owned())).collect()
    };
    let header: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| if at == 0 { format!("{name}: {column}") } else { (*column).clone() })
        .collect();
    table(&header, &documents.iter().map(row).collect::<Vec<Vec<String>>>())
}

/// `None` of what says nothing.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(is) => Some(if *is { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(short(number)),
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let told: Vec<String> = list.iter().filter_map(words).collect();
            match told.as_slice() {
                [] => None,
                [first, second, third, .., last] if told.len() > LISTED => {
                    Some(format!("{first} {second} {third} .. {last} ({} of them)", told.len()))
                }
                told => Some(told.join(" ")),
            }
        }
        Value::Object(fields) => {
            let told: Vec<String> =
                fields.iter().filter_map(|(name, value)| Some(format!("{name} {}", words(value)?))).collect();
            (!told.is_empty()).then(|| told.join(", "))
        }
    }
}

/// A number as it is, if it is short, else its first digits.
fn short(number: &serde_json::Number) -> String {
    let exact = number.to_string();
    match number.as_f64().filter(|_| number.is_f64() && exact.len() > EXACT) {
        Some(value) if (1e-3..1e6).contains(&value.abs()) => format!("{value:.4}"),
        Some(value) => format!("{value:.4e}"),
        None => exact,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Style;

    #[test]
    fn notes_are_told_in_words_without_what_they_leave_open() {
        for (note, words) in [
            (
                json!({"learning_rate": 0.003, "epsilon": 1e-8, "steps": 2}),
                "learning_rate 0.003, epsilon 1e-8, steps 2",
            ),
            (json!({"kind": "demo", "sources": [], "validation": null, "goldfish": {}}), "kind demo"),
            (json!({"validation": {"share": 0.1, "of": null}, "packed": true}), "validation (share 0.1), packed yes"),
            (json!({"recent_losses": [5.574109136995524, 5.25]}), "recent_losses 5.5741 5.25"),
            (json!({"losses": [1, 2, 3, 4, 5, 6, 7]}), "losses 1 2 3 .. 7 (7 of them)"),
            (json!({"norm": 1.234567890123e-5}), "norm 1.2346e-5"),
            (json!("a text"), "a text"),
            (json!(null), ""),
        ] {
            assert_eq!(told(&note), words);
        }
    }

    #[test]
    fn lists_of_documents_are_tables() {
        let note = json!({"sources": [{"path": "a.txt", "weight": null}, {"path": "b.txt", "tokens": 7, "files": [{"bytes": 3}]}], "kind": "files"});
        let tables: String = listed(&note).iter().map(|table| table.shown(Style::FULL)).collect();
        assert_eq!(tables, "sources: path  tokens\na.txt               -\nb.txt               7\n");
        assert_eq!(told(&note), "kind files");
    }
}
