//! Steps of many layouts, predicted and measured on this machine: a table, a document.

mod document;
mod text;

use quadrille_measure::local::{Comparison, LocalGrids, Row};
use quadrille_spec::Axis;
use serde_json::Value;

use crate::candidate::sizes;

/// What was compared, and on what.
pub struct LocalReport<'a> {
    /// The layouts, how they ran, and what was left out.
    pub grids: &'a LocalGrids,
    /// What came of it.
    pub comparison: &'a Comparison,
    /// Processors of this machine.
    pub cores: usize,
}

impl LocalReport<'_> {
    /// What a page shows: the document, with what is told around its table.
    pub fn page_document(&self) -> Value {
        let mut document = self.document();
        let lines = |text: &str| -> Value { text.lines().collect() };
        document["told"] = lines(&self.head());
        document["summary_told"] = lines(&text::summary(self.comparison));
        document["left_out"] = lines(&self.left_out());
        document
    }

    /// For comma-separated values: the header and a row for every layout, with the names of [`Self::document`].
    pub fn rows(&self) -> Vec<Vec<String>> {
        document::rows(self.comparison)
    }
}

/// `x=2,data=2`: axes above 1.
fn name(row: &Row) -> String {
    sizes(Axis::ALL.map(|axis| row.layout.grid.size(axis)))
}

/// Why nothing was predicted, if nothing was.
fn not_predicted(row: &Row) -> Option<String> {
    row.predicted.as_ref().err().map(ToString::to_string)
}
