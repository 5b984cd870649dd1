//! Values of a request as files, bodies and forms write them: numbers also as text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use quadrille_spec::{Field, FieldValue, LayoutFile};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeSeed, Error, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Defines a type that stands for values of several kinds in schemas.
macro_rules! schema_type {
    ($name:ident, $schema:tt) => {
        pub struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema_type!(NumberSchema, { "type": ["number", "string"] });
schema_type!(CountsSchema, { "type": ["integer", "array", "string"], "items": { "type": ["integer", "string"] } });
schema_type!(ImbalanceSchema, { "type": ["number", "string", "object"] });
schema_type!(DescriptionSchema, { "type": ["string", "object"] });
schema_type!(AssignmentsSchema, { "type": ["object", "array", "string"] });

/// Text, or the text of a number or of a truth.
pub struct Scalar(pub String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalars;

        impl Visitor<'_> for Scalars {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or text, e.g. 64 or \"64\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.trim().to_owned()))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
        }

        deserializer.deserialize_any(Scalars)
    }
}

/// Reads a value, or null, through its text.
fn parsed<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, D::Error> {
    let Some(Scalar(text)) = Option::deserialize(deserializer)? else { return Ok(None) };
    parse(&text).map(Some).map_err(|error| D::Error::custom(format!("\"{text}\": {error}")))
}

/// Choices and quantities that have a text form.
pub mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserializer, Serializer};

    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        super::parsed(deserializer, str::parse)
    }
}

/// Numbers.
pub mod number {
    use std::str::FromStr;

    use serde::{Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        super::parsed(deserializer, super::number_of)
    }
}

/// Reads a number.
fn number_of<T: std::str::FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "it is no number that this field takes; give e.g. 64")
}

/// Large numbers, which may be written with a letter: `15T`.
pub mod amount {
    use quadrille_spec::quantities;
    use serde::{Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        super::parsed(deserializer, quantities::amount)
    }
}

/// Parts of a whole, which may be written in per cent: `5%`.
pub mod part {
    use serde::{Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        super::parsed(deserializer, super::part_of)
    }
}

/// Reads a part of a whole, at most ten times it: `0.05` or `5%`.
pub fn part_of(text: &str) -> Result<f64, &'static str> {
    let percent = text.strip_suffix('%').map(|percent| percent.trim_end().parse::<f64>().map(|part| part / 100.0));
    let part = percent.unwrap_or_else(|| text.parse()).ok().filter(|part| (0.0..=10.0).contains(part));
    part.ok_or("it is a part of the fastest layout's time, up to 1000%; write e.g. 5%")
}

/// Numbers of devices: one, a list, or a range such as `64..1024`.
pub mod counts {
    use std::fmt;

    use quadrille_spec::quantities;
    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serialize, Serializer};

    use super::{Scalar, number_of};

    /// Most numbers of a list, as of a range in words.
    const MOST_COUNTS: usize = 256;

    pub fn serialize<S: Serializer>(counts: &[usize], serializer: S) -> Result<S::Ok, S::Error> {
        match counts {
            [count] => count.serialize(serializer),
            counts => counts.serialize(serializer),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<usize>, D::Error> {
        struct Counts;

        impl<'de> Visitor<'de> for Counts {
            type Value = Vec<usize>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of devices, a list of them, or a range such as \"64..1024\"")
            }

            fn visit_unit<E: Error>(self) -> Result<Vec<usize>, E> {
                Ok(Vec::new())
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<Vec<usize>, E> {
                usize::try_from(count).map(|count| vec![count]).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<Vec<usize>, E> {
                usize::try_from(count)
                    .map(|count| vec![count])
                    .map_err(|_| E::custom(format!("{count}: it is no number of devices")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Vec<usize>, E> {
                let remedy = "give e.g. 64, a list 64,96 or a range 64..1024";
                let counts = quantities::whole_numbers("numbers of devices", text);
                counts.map_err(|_| E::custom(format!("\"{text}\": it is no number of devices; {remedy}")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<usize>, A::Error> {
                let mut counts = Vec::new();
                while let Some(Scalar(text)) = list.next_element()? {
                    counts.push(number_of(&text).map_err(|error| A::Error::custom(format!("\"{text}\": {error}")))?);
                }
                if counts.len() > MOST_COUNTS {
                    return Err(A::Error::custom(format!("a list has at most {MOST_COUNTS} numbers of devices")));
                }
                counts.sort_unstable();
                counts.dedup();
                Ok(counts)
            }
        }

        deserializer.deserialize_any(Counts)
    }
}

/// Imbalance of experts: a number, or measured loads.
pub mod imbalance {
    use quadrille_spec::{Imbalance, MeasuredLoads};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub fn serialize<S: Serializer>(value: &Option<Imbalance>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(Imbalance::Measured(loads)) => loads.serialize(serializer),
            Some(Imbalance::Times(times)) => times.serialize(serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Imbalance>, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(None),
            Value::Object(table) => {
                let loads = MeasuredLoads::deserialize(Value::Object(table)).map_err(D::Error::custom)?;
                Ok(Some(Imbalance::Measured(loads)))
            }
            scalar => {
                let times = super::parsed(scalar, super::number_of).map_err(D::Error::custom)?;
                Ok(times.map(Imbalance::Times))
            }
        }
    }
}

/// Choices of a layout that stand beside other fields.
pub fn choices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LayoutFile, D::Error> {
    let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let mut choices = LayoutFile::default();
    for (name, value) in values {
        let Some(field) = Field::ALL.into_iter().find(|field| field.key() == name) else {
            return Err(D::Error::custom(format!(
                "unknown field `{name}`: a request has the names of the options of `quadrille plan`"
            )));
        };
        let value = match value {
            // Forms have texts alone.
            Value::String(text) => {
                let text = text.trim().to_owned();
                let parsed = field.parse(&text).or_else(|error| least_interval(field, &text).ok_or(error));
                Some(parsed.map_err(|error| (text, error)))
            }
            value => {
                let named = |error| D::Error::custom(format!("{name}: {error}"));
                field.kind().deserialize(value).map_err(named)?.map(Ok)
            }
        };
        let Some(value) = value else { continue };
        let value = value.map_err(|(text, error)| D::Error::custom(format!("{name}: \"{text}\": {error}")))?;
        choices = choices.with(field, value);
    }
    Ok(choices)
}

/// The interval of recomputation that follows from memory: a value of layouts, which a search refuses by its own rule.
fn least_interval(field: Field, text: &str) -> Option<FieldValue> {
    (field == Field::Recompute && text == super::resolve::LEAST_INTERVAL).then(|| FieldValue::Name(text.to_owned()))
}

/// Puts the fields of a patch in place of those of a document, tables by their own fields.
pub fn merge(document: &mut Value, patch: Value) {
    match (document, patch) {
        (Value::Object(document), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(document.entry(name).or_insert(Value::Null), value);
            }
        }
        (document, patch) => *document = patch,
    }
}
