//! What a run's folder holds, as one document.

use quadrille_run::shown_layout;
use serde_json::{Value, json};

use super::read::{Run, Stored};

impl Run {
    /// All of it, as `report --json` prints it.
    pub fn document(&self) -> Value {
        let stored = |Stored { step, name, bytes }: &Stored| json!({ "step": step, "name": name, "bytes": bytes });
        let summary = self.summary.as_ref().ok();
        let ledger = summary.map(|summary| &summary.ledger);
        json!({
            "path": self.path.to_string_lossy(),
            "command": self.command,
            "model": self.program.model,
            "layout": shown_layout(&self.program.layout),
            "threads": self.threads,
            "last": self.last,
            "floor": self.floor,
            "steps": self.steps,
            "flops_convention": self.flops_convention.to_string(),
            "tflops_per_device": self.tflops_per_device(),
            "events": self.events,
            "checkpoints": self.checkpoints.iter().map(stored).collect::<Vec<_>>(),
            "unfinished": self.unfinished,
            "cut": self.cut,
            "ledger": {
                "predicted": ledger.map_or(&self.predicted, |ledger| &ledger.predicted),
                "counted": ledger.and_then(|ledger| ledger.counted.as_ref()),
                "equal": ledger.and_then(|ledger| ledger.equal),
            },
            "expert_loads": summary.map_or(&[][..], |summary| &summary.expert_loads),
            "unsummed": self.summary.as_ref().err(),
        })
    }
}
