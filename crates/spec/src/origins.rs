//! Where the numbers of a description are from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::SpecError;
use crate::nearest_name::did_you_mean;

/// Where a number is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured: on this very machine, or by those that the source names.
    Measured,
    /// That with which published runs are predicted best.
    Fitted,
    /// Promised by the maker.
    DataSheet,
    /// Nobody has measured, fitted or promised it.
    #[default]
    Assumed,
}

impl Origin {
    /// As files and documents say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Fitted => "fitted",
            Self::DataSheet => "data_sheet",
            Self::Assumed => "assumed",
        }
    }
}

/// The origins of a table's numbers, by their names; that of a table (`products`) is that of all numbers in it
/// (`products.ceiling`) which are not named themselves. What is not named is assumed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// These numbers, all from the same.
    pub fn all<N: Into<String>>(names: impl IntoIterator<Item = N>, origin: Origin) -> Self {
        Self(names.into_iter().map(|name| (name.into(), origin)).collect())
    }

    /// Whether no number is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the number of that name is said to be from, by its own name or by that of a table.
    pub fn said(&self, number: &str) -> Option<Origin> {
        let tables = number.match_indices('.').rev().map(|(end, _)| &number[..end]);
        std::iter::once(number).chain(tables).find_map(|name| self.0.get(name)).copied()
    }

    /// Where the number of that name is from.
    pub fn of(&self, number: &str) -> Origin {
        self.said(number).unwrap_or_default()
    }

    /// Says where a number, or all numbers of a table, are from.
    pub fn set(&mut self, name: &str, origin: Origin) {
        let inside = format!("{name}.");
        self.0.retain(|known, _| !known.starts_with(&inside));
        self.0.insert(name.to_owned(), origin);
    }

    /// Holds the names against those of the numbers that are described.
    ///
    /// # Errors
    /// A name that is none of them, nor of a table of them.
    pub(crate) fn check(&self, field: &str, known: &[String]) -> Result<(), SpecError> {
        let is_known = |name: &str| {
            let inside = format!("{name}.");
            known.iter().any(|number| number == name || number.starts_with(&inside))
        };
        let Some((name, origin)) = self.0.iter().find(|(name, _)| !is_known(name)) else { return Ok(()) };
        let rule = "an origin is that of a number which the description has";
        let remedy = format!("leave it out{}", did_you_mean(name, known.iter().map(String::as_str)));
        Err(SpecError::invalid(format!("{field}.{name}"), origin.name(), rule, remedy))
    }
}

/// The names of all numbers of a description, as its file has them: `peak.half`; a list is one, by its name.
pub(crate) fn numbers_of(description: &impl Serialize) -> Vec<String> {
    // What TOML cannot hold has no file, and so no names in one.
    Value::try_from(description).map(|table| numbers(&table)).unwrap_or_default()
}

fn numbers(table: &Value) -> Vec<String> {
    let Some(table) = table.as_table() else { return Vec::new() };
    let named = table.iter().flat_map(|(name, value)| match value {
        Value::Integer(_) | Value::Float(_) | Value::Array(_) => vec![name.clone()],
        Value::Table(_) => numbers(value).into_iter().map(|inner| format!("{name}.{inner}")).collect(),
        _ => Vec::new(),
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_s_origin_is_that_of_what_it_does_not_name() {
        let mut origins = Origins::all(["products", "peak"], Origin::Fitted);
        origins.set("peak.half", Origin::DataSheet);
        let of = |name| origins.of(name);
        assert_eq!((of("products.ceiling"), of("peak.half")), (Origin::Fitted, Origin::DataSheet));
        assert_eq!((of("peak.single"), of("peaks"), of("memory")), (Origin::Fitted, Origin::Assumed, Origin::Assumed));
        origins.set("peak", Origin::Measured);
        assert_eq!(origins.of("peak.half"), Origin::Measured);
    }

    #[test]
    fn origins_of_what_is_not_there_are_refused() {
        let table: Value = toml::from_str("a = 1\nname = \"x\"\n[b]\nc = 2.0\nd = [1]").unwrap();
        let known = numbers_of(&table);
        assert_eq!(known, ["a", "b.c", "b.d"]);
        assert!(Origins::all(["a", "b", "b.c", "b.d"], Origin::Measured).check("origins", &known).is_ok());
        for wrong in ["name", "b.e", "c"] {
            let message = Origins::all([wrong], Origin::Fitted).check("origins", &known).unwrap_err().to_string();
            assert!(message.contains(&format!("origins.{wrong} = fitted")), "{message}");
        }
    }
}
