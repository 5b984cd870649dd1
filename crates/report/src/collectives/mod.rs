//! Collectives that were measured by several algorithms, as a table.

mod table;

use quadrille_measure::collectives::Measured;
use schemars::JsonSchema;
use serde::Serialize;

pub use self::table::{rows, text};
use crate::ReportVersion;

/// Collectives that were measured by several algorithms: what `bench collectives --json` prints.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CollectivesReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// The measurements.
    pub collectives: Vec<Measured>,
}

impl CollectivesReport {
    /// Report of measurements.
    pub fn new(collectives: Vec<Measured>) -> Self {
        Self { version: ReportVersion::CURRENT, collectives }
    }
}
