//! Numbers that may not be finite, in text: JSON has only null for them.

use serde::{Deserialize, Deserializer, Serializer};

/// A number; null where it is not finite and the format is one for people.
pub(crate) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() && !number.is_finite() {
        return serializer.serialize_none();
    }
    serializer.serialize_f64(*number)
}

/// The number again; not a number for null.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    if deserializer.is_human_readable() {
        return Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN));
    }
    f64::deserialize(deserializer)
}
