//! The column that holds the text.

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::schema::types::{SchemaDescriptor, Type};

/// Names of columns that a message lists.
const LISTED: usize = 24;

/// Number of the column `field` among the leaves of a schema.
///
/// # Errors
/// The reason why there is no such column of strings.
pub(super) fn text_column(schema: &SchemaDescriptor, field: &str) -> Result<usize, String> {
    let columns = schema.root_schema().get_fields();
    let mut named = columns.iter().filter(|column| column.name() == field);
    let Some(column) = named.next() else {
        let mut names: Vec<&str> = columns.iter().take(LISTED).map(|column| column.name()).collect();
        if columns.len() > LISTED {
            names.push("...");
        }
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("it has no column `{field}`; its columns: {names}"));
    };
    if named.next().is_some() {
        return Err(format!("the column `{field}` occurs twice"));
    }
    if let Some(nesting) = nesting(column) {
        return Err(format!("its column `{field}` is {nesting}, and a text is a string in a column of its own"));
    }
    if let Some(other) = other_type(column) {
        return Err(format!("its column `{field}` is of type {other}, and a text is a string"));
    }
    let is_column = |leaf: usize| schema.column(leaf).path().parts() == [field];
    (0..schema.num_columns()).find(|leaf| is_column(*leaf)).ok_or_else(|| format!("its column `{field}` has no values"))
}

/// Kind of a column with other columns in it or with several values in a row.
fn nesting(column: &Type) -> Option<&'static str> {
    let info = column.get_basic_info();
    if info.has_repetition() && info.repetition() == Repetition::REPEATED {
        return Some("a list");
    }
    if column.is_primitive() {
        return None;
    }
    Some(match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::List), _) | (_, ConvertedType::LIST) => "a list",
        (Some(LogicalType::Map), _) | (_, ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE) => "a map",
        _ => "a struct",
    })
}

/// The type of a column without nesting that holds no strings.
fn other_type(column: &Type) -> Option<String> {
    let physical = column.get_physical_type();
    let info = column.get_basic_info();
    let is_bytes = physical == PhysicalType::BYTE_ARRAY;
    match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::String), _) | (None, ConvertedType::UTF8) if is_bytes => None,
        (Some(logical), _) => {
            let name = format!("{logical:?}");
            Some(format!("{physical} ({})", name.split(['(', ' ']).next().unwrap_or(&name)))
        }
        (None, ConvertedType::NONE) if is_bytes => Some(format!("{physical} without the annotation STRING")),
        (None, ConvertedType::NONE) => Some(physical.to_string()),
        (None, converted) => Some(format!("{physical} ({converted})")),
    }
}
