//! Version of the documents.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Version of a report's document, its first field. Fields may be added to a version; a field that is renamed, removed or means
/// something else makes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReportVersion(u32);

impl ReportVersion {
    /// Version that this program writes.
    pub const CURRENT: Self = Self(1);
}

impl Default for ReportVersion {
    fn default() -> Self {
        Self::CURRENT
    }
}

impl JsonSchema for ReportVersion {
    fn schema_name() -> Cow<'static, str> {
        "ReportVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "Version of the document.",
            "const": Self::CURRENT.0,
        })
    }

    fn inline_schema() -> bool {
        true
    }
}
