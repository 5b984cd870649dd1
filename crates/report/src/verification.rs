//! Layouts that were held against the serial model.

use quadrille_plan::Skipped;
use quadrille_run::shown_layout;
use quadrille_spec::{Layout, LayoutFile, Sparsity};
use quadrille_verify::{DecisionsReport, VerifyReport};
use serde::Serialize;

use crate::{Text, table};

/// A layout with how far it is from the serial model.
#[derive(Debug, Clone)]
pub struct Verified {
    /// The layout.
    pub layout: Layout,
    /// How far it is.
    pub report: VerifyReport,
}

/// What was verified, and what was left out.
pub struct VerificationReport<'a> {
    /// How much of the model was pruned, if it was.
    pub sparsity: Option<Sparsity>,
    /// The layouts.
    pub verified: &'a [Verified],
    /// Grids that the model or the batch does not allow.
    pub skipped: &'a [Skipped],
}

#[derive(Serialize)]
struct Document<'a> {
    sparsity: Option<Sparsity>,
    grids: Vec<Entry<'a>>,
    skipped: &'a [Skipped],
}

#[derive(Serialize)]
struct Entry<'a> {
    layout: LayoutFile,
    #[serde(flatten)]
    report: &'a VerifyReport,
}

impl<'a> VerificationReport<'a> {
    /// How many layouts differ from the serial model, or from their prediction.
    pub fn failed(&self) -> usize {
        self.verified.iter().filter(|verified| !verified.report.ok).count()
    }

    /// All of it, as `verify --json` prints it.
    pub fn document(&self) -> impl Serialize + use<'a> {
        let entry = |verified: &'a Verified| Entry { layout: shown_layout(&verified.layout), report: &verified.report };
        let grids = self.verified.iter().map(entry).collect();
        Document { sparsity: self.sparsity, grids, skipped: self.skipped }
    }

    /// For people: a table, then every difference, then what was left out; of several layouts how many are equal.
    pub fn text(&self) -> Text {
        let header = ["grid", "activations", "loss", "gradients", "norm", "weights", "evaluation", "ledger", "result"];
        let pruned = self.sparsity.map(|sparsity| format!("{sparsity} of all matrices and tables pruned by chance\n"));
        let table = table(&header, &self.verified.iter().map(row).collect::<Vec<_>>());
        let mut text = Text::from(pruned.unwrap_or_default()) + table.spare(&["activations", "norm", "evaluation"]);
        for Verified { report, .. } in self.verified {
            if let Some(DecisionsReport { made, differing, smallest_margin }) = report.decisions {
                let least = format!("the least clear one by {smallest_margin:.1e} of the largest score");
                text += format!("{}: {made} choices of experts, {differing} other ones, {least}\n", report.grid);
            }
            for failure in &report.failures {
                text += format!("{}: {failure}\n", report.grid);
            }
        }
        for Skipped { grid, reason } in self.skipped {
            text += format!("skipped {grid}: {reason}\n");
        }
        let all = self.verified.len();
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

fn row(Verified { report, .. }: &Verified) -> Vec<String> {
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
