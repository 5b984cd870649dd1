//! The report of layouts that were compared with the serial model.

use quadrille_plan::Skipped;
use quadrille_run::shown_layout;
use quadrille_spec::{Layout, LayoutFile, Sparsity};
use quadrille_verify::{DecisionsReport, VerifyReport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ReportVersion, Text, table};

/// Layouts that were compared with the serial model: what `verify --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerificationReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Part of the model that was pruned by chance; null where nothing was.
    pub sparsity: Option<f64>,
    /// The layouts.
    pub grids: Vec<VerifiedLayout>,
    /// Grids that the model or the batch does not allow.
    pub skipped: Vec<Skipped>,
    /// The pruned part in exact digits; no part of documents.
    #[serde(skip)]
    pub exact_sparsity: Option<Sparsity>,
}

/// A layout with its differences from the serial model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedLayout {
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// Its differences.
    #[serde(flatten)]
    pub report: VerifyReport,
}

impl VerifiedLayout {
    /// A layout and its differences.
    pub fn new(layout: &Layout, report: VerifyReport) -> Self {
        Self { layout: shown_layout(layout), report }
    }
}

impl VerificationReport {
    /// Report of layouts of a model, of which this part was pruned, and of grids that were left out.
    pub fn new(sparsity: Option<Sparsity>, grids: Vec<VerifiedLayout>, skipped: Vec<Skipped>) -> Self {
        Self {
            version: ReportVersion::CURRENT,
            sparsity: sparsity.map(Sparsity::part),
            grids,
            skipped,
            exact_sparsity: sparsity,
        }
    }

    /// Number of layouts that differ from the serial model, or from their prediction.
    pub fn failed(&self) -> usize {
        self.grids.iter().filter(|verified| !verified.report.ok).count()
    }

    /// A table, then every difference, then what was left out; of several layouts how many are equal.
    pub fn text(&self) -> Text {
        let header = ["grid", "activations", "loss", "gradients", "norm", "weights", "evaluation", "ledger", "result"];
        let pruned =
            self.exact_sparsity.map(|sparsity| format!("{sparsity} of all matrices and tables pruned by chance\n"));
        let table = table(&header, &self.grids.iter().map(row).collect::<Vec<_>>());
        let mut text = Text::from(pruned.unwrap_or_default()) + table.spare(&["activations", "norm", "evaluation"]);
        for VerifiedLayout { report, .. } in &self.grids {
            if let Some(DecisionsReport { made, differing, smallest_margin }) = report.decisions {
                let least = format!("the least clear one by {smallest_margin:.1e} of the largest score");
                text += format!("{}: {made} choices of experts, {differing} other ones, {least}\n", report.grid);
            }
            for failure in &report.failures {
                text += format!("{}: {failure}\n", report.grid);
            }
        }
        for Skipped { grid, reason } in &self.skipped {
            text += format!("skipped {grid}: {reason}\n");
        }
        let all = self.grids.len();
        if all > 1 || !self.skipped.is_empty() {
            let skipped = match self.skipped.len() {
                0 => String::new(),
                skipped => format!(", {skipped} skipped"),
            };
            text += format!("{} of {all} ok{skipped}\n", all - self.failed());
        }
        text
    }
}

fn row(VerifiedLayout { report, .. }: &VerifiedLayout) -> Vec<String> {
    let VerifyReport { loss_diff, grad_diff, norm_diff, weight_diff, evaluation_diff, .. } = *report;
    let differences = [loss_diff, grad_diff, norm_diff, weight_diff, evaluation_diff];
    let ledger = if report.ledger_equal { "equal" } else { "UNEQUAL" };
    let result = if report.ok { "ok" } else { "DIFFERS" };
    [report.grid.clone(), report.activations.clone()]
        .into_iter()
        .chain(differences.map(|difference| format!("{difference:.1e}")))
        .chain([ledger, result].map(str::to_owned))
        .collect()
}
