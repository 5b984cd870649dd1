//! Steps of many layouts, predicted and measured on this machine: a table, a document, a page.

mod document;
mod figures;
mod text;

use quadrille_measure::local::{Comparison, LocalCase, Row};
use quadrille_plan::Skipped;
use quadrille_spec::Axis;

use crate::candidate::sizes;
use crate::drawing;

/// What was compared, and on what.
pub struct LocalReport<'a> {
    /// The layouts, and how they ran.
    pub case: &'a LocalCase,
    /// What came of it.
    pub comparison: &'a Comparison,
    /// What of the cluster nobody measured.
    pub assumed: Option<&'a str>,
    /// Ranks of each layout.
    pub ranks: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Processors of this machine.
    pub cores: usize,
    /// Whether a machine has more ranks' threads than cores.
    pub crowded: bool,
    /// How many of the grids are legal; [`Self::case`] may have fewer.
    pub legal: usize,
    /// Grids that the model or the batch does not allow.
    pub skipped: &'a [Skipped],
}

impl LocalReport<'_> {
    /// A page of figures with the table.
    pub fn page(&self) -> String {
        let Self { case, comparison, .. } = self;
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
