//! The loss of a checkpoint.

use quadrille_engine::EvaluateOutcome;
use quadrille_run::{Evaluation, shown_layout};
use serde_json::{Value, json};

/// What an evaluation has found.
pub struct EvaluationReport<'a> {
    /// What was evaluated on what.
    pub evaluation: &'a Evaluation,
    /// What came of it.
    pub outcome: &'a EvaluateOutcome,
}

impl EvaluationReport<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let Self { evaluation, outcome } = self;
        let found = &outcome.evaluation;
        let checkpoint = evaluation.forward().checkpoint();
        let unit = if self.reads_patches() { "numbers" } else { "tokens" };
        let perplexity = self.perplexity().map_or_else(String::new, |number| format!("perplexity  {number:.4}\n"));
        let again = match evaluation.available() {
            Some(all) if all < found.samples => {
                format!("read again  {} samples: the data has {all}\n", found.samples - all)
            }
            _ => String::new(),
        };
        format!(
            "checkpoint  {}: {}, step {}\nloss        {:.6}\n{perplexity}{unit:<12}{} in {} {} samples, {:.0} a second\n{again}",
            checkpoint.path().display(),
            checkpoint.about().model.name,
            checkpoint.about().step,
            found.loss,
            found.targets,
            found.samples,
            self.kind(),
            found.targets as f64 / outcome.seconds,
        )
    }

    /// All of it, as `eval --json` prints it.
    pub fn document(&self) -> Value {
        let Self { evaluation, outcome } = self;
        let found = &outcome.evaluation;
        let checkpoint = evaluation.forward().checkpoint();
        json!({
            "checkpoint": checkpoint.path().to_string_lossy(),
            "step": checkpoint.about().step,
            "model": checkpoint.about().model,
            "layout": shown_layout(evaluation.forward().layout()),
            "samples": self.kind(),
            "loss": found.loss,
            "perplexity": self.perplexity(),
            "targets": found.targets,
            "sequences": found.samples,
            "available": evaluation.available(),
            "batches": found.steps,
            "seconds": outcome.seconds,
            "ledger": {
                "predicted": outcome.predicted,
                "counted": outcome.counted,
                "equal": outcome.difference.is_none(),
            },
        })
    }

    fn kind(&self) -> &'static str {
        if self.evaluation.is_validation() { "validation" } else { "training" }
    }

    fn reads_patches(&self) -> bool {
        self.evaluation.forward().model().patch_values.is_some()
    }

    /// `e` to the loss, which means something of tokens alone.
    fn perplexity(&self) -> Option<f64> {
        (!self.reads_patches()).then(|| self.outcome.evaluation.perplexity())
    }
}
