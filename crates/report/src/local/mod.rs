//! Steps of many layouts, predicted and measured on this machine: a table, a document, a page.

mod document;
mod figures;
mod text;

use quadrille_measure::local::{Comparison, LocalGrids, Row};
use quadrille_spec::Axis;

use crate::candidate::sizes;
use crate::drawing;

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
    /// A page of figures with the table.
    pub fn page(&self) -> String {
        let Self { grids, comparison, .. } = self;
        let case = &grids.case;
        let body = drawing::paragraph(&self.head())
            + &figures::scatter(comparison)
            + &figures::bars(comparison)
            + &drawing::paragraph(&text::summary(comparison))
            + &drawing::paragraph(&self.left_out());
        let title = format!("{} on {}: predicted and measured steps", case.model.name, case.cluster.name);
        drawing::page(&title, &body, &text::table(comparison))
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
