//! Steps of many layouts, predicted and measured on this machine: a table, a document.

mod document;
mod text;

use quadrille_measure::local::{Comparison, LocalGrids, Row};
use quadrille_spec::Axis;

pub use self::document::{BestLayouts, LocalDocument, LocalEntry, LocalLayout, LocalPage, LocalSummary};
use crate::ReportError;
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
    /// Page of the layouts.
    pub fn page(&self) -> LocalPage {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        LocalPage {
            document: self.document(),
            told: lines(&self.head()),
            summary_told: lines(&text::summary(self.comparison)),
            left_out: lines(&self.left_out()),
        }
    }

    /// Header and rows of comma-separated values: a row for every layout, with the names of [`LocalEntry`].
    ///
    /// # Errors
    /// An entry that is no object of JSON, which none is.
    pub fn rows(&self) -> Result<Vec<Vec<String>>, ReportError> {
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
