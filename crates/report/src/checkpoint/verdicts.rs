//! Checkpoints that were held against their checksums.

use std::error::Error;

use quadrille_checkpoint::{CheckpointError, Summary, Verdict};
use quadrille_run::units::bytes;
use serde_json::{Value, json};

use quadrille_spec::counted;

/// All of it, as `checkpoint verify --json` prints it.
pub fn verdicts_document(verdicts: &[Verdict]) -> Value {
    let document = |verdict: &Verdict| {
        json!({
            "path": verdict.path.to_string_lossy(),
            "sound": verdict.is_sound(),
            "summary": verdict.summary,
            "faults": verdict.faults.iter().map(told).collect::<Vec<_>>(),
        })
    };
    json!({ "checkpoints": verdicts.iter().map(document).collect::<Vec<_>>() })
}

/// For people.
pub fn verdicts_text(verdicts: &[Verdict]) -> String {
    verdicts.iter().map(text).collect()
}

fn text(verdict: &Verdict) -> String {
    let mut text = format!("{}\n", verdict.path.display());
    let mut tell = |line: String| text += &format!("  {line}\n");
    if let Some(Summary { tensors, files, tiles, bytes: size, not_finite }) = &verdict.summary {
        let size = bytes(*size);
        let sound = if verdict.is_sound() { "all sound" } else { "sound of them" };
        tell(format!(
            "{sound}: {tiles} tiles, {size}; {tensors} tensors in {}, each number in exactly one tile",
            counted(*files, "file")
        ));
        for found in not_finite {
            let numbers = usize::try_from(found.numbers).unwrap_or(usize::MAX);
            tell(format!("not finite: {} of {} ({})", counted(numbers, "number"), found.tensor, found.quantity));
        }
    }
    verdict.faults.iter().for_each(|fault| tell(format!("damaged: {}", told(fault))));
    text
}

/// An error with its causes.
fn told(error: &CheckpointError) -> String {
    let causes = std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}
