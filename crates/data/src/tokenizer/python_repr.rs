//! Values as Python prints them: lists and maps with the representations of their items.

use minijinja::Value;
use minijinja::value::ValueKind;

/// Text of `str(value)` in Python.
pub(super) fn printed(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.to_string(),
        _ => represented(value),
    }
}

/// Text of `repr(value)` in Python.
fn represented(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "None".to_owned(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
        }
        ValueKind::String => quoted(&value.to_string()),
        ValueKind::Seq => format!("[{}]", items(value, represented)),
        ValueKind::Map => {
            let entry = |key: &Value| {
                format!("{}: {}", represented(key), represented(&value.get_item(key).unwrap_or_default()))
            };
            format!("{{{}}}", items(value, entry))
        }
        _ => value.to_string(),
    }
}

/// Items of a list, or keys of a map, as `item` prints them.
fn items(value: &Value, item: impl Fn(&Value) -> String) -> String {
    let items = value.try_iter().into_iter().flatten();
    items.map(|one| item(&one)).collect::<Vec<_>>().join(", ")
}

/// A number with a fraction, by the shortest digits that are read as the same number.
fn float(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        return if number.is_nan() { "nan".to_owned() } else { format!("{number}") };
    }
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{number:?}")
}

/// A string between quotes, single ones unless it has only single ones itself.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::from(quote);
    for character in text.chars() {
        match character {
            '\n' => quoted += "\\n",
            '\r' => quoted += "\\r",
            '\t' => quoted += "\\t",
            '\\' => quoted += "\\\\",
            other if other == quote => quoted.extend(['\\', other]),
            other if other.is_ascii_control() => quoted += &format!("\\x{:02x}", other as u32),
            other => quoted.push(other),
        }
    }
    quoted.push(quote);
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts are those of Python 3.11.
    #[test]
    fn values_are_printed_as_python_prints_them() {
        let text = |source: &str| {
            let environment = minijinja::Environment::new();
            let value = environment.compile_expression(source).unwrap().eval(()).unwrap();
            printed(&value)
        };
        for (source, expected) in [
            ("none", "None"),
            ("true", "True"),
            ("'it\\'s'", "it's"),
            ("[1, 'a', true, none, 2.0]", "[1, 'a', True, None, 2.0]"),
            (
                "['it\\'s', 'say \"x\"', 'it\\'s \"x\"', 'a\\n\\t\\\\']",
                r#"["it's", 'say "x"', 'it\'s "x"', 'a\n\t\\']"#,
            ),
            ("{'role': 'user', 'n': [{}]}", "{'role': 'user', 'n': [{}]}"),
            ("1e16", "1e+16"),
            ("123456789012345678.0", "1.2345678901234568e+17"),
            ("1234567890123456.0", "1234567890123456.0"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("[0.1, 1.5e-7, 3]", "[0.1, 1.5e-07, 3]"),
            ("['\u{7}', 'é']", "['\\x07', 'é']"),
        ] {
            assert_eq!(text(source), expected, "{source}");
        }
    }
}
