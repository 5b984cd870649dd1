//! What users write for the fields of a layout.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::SpecError;
use crate::quantities::{self, BatchSize};
use crate::{
    Activations, AxisOrder, AxisSet, Dispatch, ElementType, Grid, KeepWeights, Linear, Offload, Overlap, Recompute,
    Schedule, Zero, by_name,
};

/// A value of a field, as flags, files and documents have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// A whole number.
    Size(usize),
    /// Tokens of a step, in place of its sequences.
    #[serde(serialize_with = "with_word")]
    Tokens(usize),
    /// Yes or no.
    Truth(bool),
    /// Whole numbers.
    Sizes(Vec<usize>),
    /// A choice by its name.
    Name(String),
}

/// Writes tokens as they are read.
fn with_word<S: Serializer>(tokens: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{tokens} tokens"))
}

impl From<usize> for FieldValue {
    fn from(size: usize) -> Self {
        Self::Size(size)
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "{size}"),
            Self::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Self::Truth(truth) => write!(f, "{truth}"),
            Self::Sizes(sizes) => f.write_str(&sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Which values a field has in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`FieldValue::Size`].
    Size,
    /// [`FieldValue::Size`]: tokens of a sequence, in files as a number or as text (`8k`).
    Length,
    /// [`FieldValue::Size`] or [`FieldValue::Tokens`], in files as a number or as text (`4M`).
    Batch,
    /// [`FieldValue::Truth`].
    Truth,
    /// [`FieldValue::Sizes`].
    Sizes,
    /// [`FieldValue::Name`].
    Name,
}

impl<'de> serde::de::DeserializeSeed<'de> for Kind {
    /// What is null is not said.
    type Value = Option<FieldValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Ok(match self {
            Self::Size => Option::deserialize(deserializer)?.map(FieldValue::Size),
            Self::Length => written(deserializer, |text| Ok(Length::parse(text)?.value()))?,
            Self::Batch => written(deserializer, |text| Ok(quantities::batch(text)?.value()))?,
            Self::Truth => Option::deserialize(deserializer)?.map(FieldValue::Truth),
            Self::Sizes => Option::deserialize(deserializer)?.map(FieldValue::Sizes),
            Self::Name => Option::deserialize(deserializer)?.map(FieldValue::Name),
        })
    }
}

/// Reads a whole number, or what text says; null says nothing.
fn written<'de, D: Deserializer<'de>>(
    deserializer: D,
    parse: fn(&str) -> Result<FieldValue, SpecError>,
) -> Result<Option<FieldValue>, D::Error> {
    match Option::<Written>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Written::Number(number)) => Ok(Some(FieldValue::Size(number))),
        Some(Written::Text(text)) => {
            parse(&text).map(Some).map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
        }
    }
}

/// A number as files have it.
enum Written {
    Number(usize),
    Text(String),
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;

        impl Visitor<'_> for Numbers {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or text such as \"8k\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Written, E> {
                let size = usize::try_from(number);
                size.map(Written::Number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Written, E> {
                let size = usize::try_from(number);
                size.map(Written::Number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Written, E> {
                match quantities::tokens(&number.to_string()) {
                    Ok(size) => Ok(Written::Number(size)),
                    Err(_) => Err(E::invalid_type(Unexpected::Float(number), &self)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Written, E> {
                Ok(Written::Text(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Numbers)
    }
}

/// A type of fields.
pub(crate) trait Typed: Sized {
    /// What files hold.
    const KIND: Kind;

    /// Reads a value, as text.
    fn parse(text: &str) -> Result<Self, SpecError>;

    /// As users write it.
    fn value(&self) -> FieldValue;
}

impl Typed for usize {
    const KIND: Kind = Kind::Size;

    fn parse(text: &str) -> Result<Self, SpecError> {
        let whole = || SpecError::Number { rule: "a whole number".to_owned(), remedy: "write e.g. 8".to_owned() };
        text.parse().map_err(|_| whole())
    }

    fn value(&self) -> FieldValue {
        FieldValue::Size(*self)
    }
}

/// Tokens of a sequence.
pub(crate) struct Length(usize);

impl Typed for Length {
    const KIND: Kind = Kind::Length;

    fn parse(text: &str) -> Result<Self, SpecError> {
        quantities::tokens(text).map(Self)
    }

    fn value(&self) -> FieldValue {
        FieldValue::Size(self.0)
    }
}

impl Typed for BatchSize {
    const KIND: Kind = Kind::Batch;

    fn parse(text: &str) -> Result<Self, SpecError> {
        quantities::batch(text)
    }

    fn value(&self) -> FieldValue {
        match *self {
            Self::Sequences(sequences) => FieldValue::Size(sequences),
            Self::Tokens(tokens) => FieldValue::Tokens(tokens),
        }
    }
}

impl Typed for bool {
    const KIND: Kind = Kind::Truth;

    fn parse(text: &str) -> Result<Self, SpecError> {
        by_name("truth", text, &[("true", true), ("false", false)])
    }

    fn value(&self) -> FieldValue {
        FieldValue::Truth(*self)
    }
}

impl Typed for Vec<usize> {
    const KIND: Kind = Kind::Sizes;

    fn parse(text: &str) -> Result<Self, SpecError> {
        // Files have lists without a number: a rule says what is wrong with those.
        if text.is_empty() { Ok(Self::new()) } else { text.split(',').map(Typed::parse).collect() }
    }

    fn value(&self) -> FieldValue {
        FieldValue::Sizes(self.clone())
    }
}

/// Stages are chosen by name, and are numbers in files.
impl Typed for Zero {
    const KIND: Kind = Kind::Size;

    fn parse(text: &str) -> Result<Self, SpecError> {
        text.parse()
    }

    fn value(&self) -> FieldValue {
        FieldValue::Size(*self as usize)
    }
}

/// Choices that are read and printed by name.
macro_rules! by_name {
    ($($type:ty),+) => {
        $(impl Typed for $type {
            const KIND: Kind = Kind::Name;

            fn parse(text: &str) -> Result<Self, SpecError> {
                text.parse()
            }

            fn value(&self) -> FieldValue {
                FieldValue::Name(self.to_string())
            }
        })+
    };
}

by_name!(
    Grid,
    AxisOrder,
    AxisSet,
    Dispatch,
    Activations,
    Linear,
    Schedule,
    Recompute,
    KeepWeights,
    Offload,
    Overlap,
    ElementType
);

/// Where a request holds a field.
pub(crate) trait Place<T> {
    /// Holds another value.
    fn put(&mut self, value: T);
}

impl<T> Place<T> for T {
    fn put(&mut self, value: T) {
        *self = value;
    }
}

impl<T> Place<T> for Option<T> {
    fn put(&mut self, value: T) {
        *self = Some(value);
    }
}

impl Place<Length> for Option<usize> {
    fn put(&mut self, length: Length) {
        *self = Some(length.0);
    }
}

/// Sequences; tokens have a place of their own ([`crate::LayoutRequest::batch_tokens`]).
impl Place<BatchSize> for usize {
    fn put(&mut self, batch: BatchSize) {
        if let BatchSize::Sequences(sequences) = batch {
            *self = sequences;
        }
    }
}

impl Place<AxisOrder> for Grid {
    fn put(&mut self, order: AxisOrder) {
        *self = self.with_order(order);
    }
}

/// Where a layout holds a field.
pub(crate) trait Holds<T> {
    /// What it holds.
    fn held(&self) -> FieldValue;
}

impl<T: Typed> Holds<T> for T {
    fn held(&self) -> FieldValue {
        self.value()
    }
}

impl Holds<Length> for usize {
    fn held(&self) -> FieldValue {
        FieldValue::Size(*self)
    }
}

impl Holds<BatchSize> for usize {
    fn held(&self) -> FieldValue {
        FieldValue::Size(*self)
    }
}

impl Holds<AxisOrder> for Grid {
    fn held(&self) -> FieldValue {
        self.order().value()
    }
}

/// A name with `_` in place of `-`, as long as it is.
pub(crate) const fn underscored<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let mut key = [b'_'; LENGTH];
    let mut index = 0;
    while index < LENGTH {
        let byte = name.as_bytes()[index];
        key[index] = if byte == b'-' { b'_' } else { byte };
        index += 1;
    }
    key
}
