//! The report of a checkpoint's loss.

use quadrille_engine::EvaluateOutcome;
use quadrille_run::{Evaluation, shown_layout};
use quadrille_spec::{LayoutFile, Ledger, ModelFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ReportVersion;

/// The loss of a checkpoint: what `eval --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvaluationReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Folder of the checkpoint.
    pub checkpoint: String,
    /// Steps of its run.
    pub step: u64,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// Kind of the samples: `validation` or `training`.
    pub samples: String,
    /// Mean loss in nats.
    pub loss: f64,
    /// `e` to the loss; null of models of patches.
    pub perplexity: Option<f64>,
    /// Number of predicted tokens, or numbers of patches.
    pub targets: u64,
    /// Number of sequences.
    pub sequences: u64,
    /// Number of different sequences of the data; null where it has no end.
    pub available: Option<u64>,
    /// Number of batches.
    pub batches: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Ledgers of the last batch.
    pub ledger: LedgerPair,
    /// True if the model reads patches; no part of documents.
    #[serde(skip)]
    pub reads_patches: bool,
}

/// Predicted and counted ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerPair {
    /// Predicted ledgers of all ranks.
    pub predicted: Ledger,
    /// Counted ledgers of all ranks.
    pub counted: Ledger,
    /// True if they are equal, as integers.
    pub equal: bool,
}

impl EvaluationReport {
    /// Report of an evaluation and its outcome.
    pub fn new(evaluation: &Evaluation, outcome: &EvaluateOutcome) -> Self {
        let found = &outcome.evaluation;
        let forward = evaluation.forward();
        let checkpoint = forward.checkpoint();
        let reads_patches = forward.model().patch_values.is_some();
        Self {
            version: ReportVersion::CURRENT,
            checkpoint: checkpoint.path().to_string_lossy().into_owned(),
            step: checkpoint.about().step,
            model: ModelFile::of(&checkpoint.about().model),
            layout: shown_layout(forward.layout()),
            samples: if evaluation.is_validation() { "validation" } else { "training" }.to_owned(),
            loss: found.loss,
            perplexity: (!reads_patches).then(|| found.perplexity()),
            targets: found.targets,
            sequences: found.samples,
            available: evaluation.available(),
            batches: found.steps,
            seconds: outcome.seconds,
            ledger: LedgerPair {
                predicted: outcome.predicted.clone(),
                counted: outcome.counted.clone(),
                equal: outcome.difference.is_none(),
            },
            reads_patches,
        }
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let unit = if self.reads_patches { "numbers" } else { "tokens" };
        let perplexity = self.perplexity.map_or_else(String::new, |number| format!("perplexity  {number:.4}\n"));
        let again = match self.available {
            Some(all) if all < self.sequences => {
                format!("read again  {} samples: the data has {all}\n", self.sequences - all)
            }
            _ => String::new(),
        };
        format!(
            "checkpoint  {}: {}, step {}\nloss        {:.6}\n{perplexity}{unit:<12}{} in {} {} samples, {:.0} a second\n{again}",
            self.checkpoint,
            self.model.name,
            self.step,
            self.loss,
            self.targets,
            self.sequences,
            self.samples,
            self.targets as f64 / self.seconds,
        )
    }
}
