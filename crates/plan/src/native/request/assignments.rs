//! Values of named fields, in the order in which they are given.

use std::fmt;
use std::str::FromStr;

use quadrille_spec::SpecError;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::scalar::Scalar;

/// Values of named fields, `key=value`: in files a table, or a list of such texts. A name may be given twice; whether that is a
/// contradiction is for the reader of the values to decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignments(Vec<(String, String)>);

impl Assignments {
    /// True if nothing is assigned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The pairs of names and values.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// These assignments, and those of `other` to names that these lack.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        let is_free = |(name, _): &&(String, String)| self.0.iter().all(|(own, _)| own != name);
        Self(other.0.iter().filter(is_free).chain(&self.0).cloned().collect())
    }

    /// Assigns one more value.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Assignments of texts, each `key=value`.
    ///
    /// # Errors
    /// A text without `=`.
    pub fn from_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, SpecError> {
        texts.into_iter().map(pair).collect::<Result<_, _>>().map(Self)
    }
}

/// The name and the value of `key=value`.
fn pair(text: &str) -> Result<(String, String), SpecError> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(SpecError::Syntax {
            what: "an assignment",
            text: text.to_owned(),
            reason: "write it as key=value, e.g. x=8; values of one key are joined by +, e.g. overlap=oar+ors"
                .to_owned(),
        }),
    }
}

impl FromStr for Assignments {
    type Err = SpecError;

    /// Reads one assignment, `x=8`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::from_texts([text])
    }
}

impl Serialize for Assignments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Assignments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Assignments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { x = 8 }, or a list of texts such as \"x=8\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Assignments, E> {
                Assignments::from_texts([text]).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Assignments, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, Scalar(value))) = map.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(Assignments(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Assignments, A::Error> {
                let mut pairs = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    pairs.push(pair(&text).map_err(serde::de::Error::custom)?);
                }
                Ok(Assignments(pairs))
            }
        }

        deserializer.deserialize_any(Pairs)
    }
}
