//! What a run says at its end.

use quadrille_engine::{StepRecord, TrainOutcome};
use quadrille_step::StepProgram;
use serde_json::{Value, json};

use super::prepare::Prepared;
use crate::describe::layout_json;
use crate::explain::ledger_text;
use crate::failure::Failure;

/// For people.
pub fn text(program: &StepProgram, outcome: &TrainOutcome) -> String {
    let (changed, measured) = outcome.ranks[0].matmuls.changed();
    let mut text = String::new();
    if measured > 0 {
        text += &format!("{changed} of {measured} products run in another layout than their operands are stored in\n");
    }
    let Some(counted) = &outcome.counted else {
        return text + "all steps were done already: none was counted\n";
    };
    let ranks = counted.ranks.len();
    text += &match outcome.difference {
        None => format!("ledger: bytes, FLOPs and memory of all {ranks} ranks as predicted, in every step\n"),
        Some(_) => "ledger: DIFFERS from the prediction\n".to_owned(),
    };
    text + &ledger_text(&program.layout.grid, &counted.ranks[0])
}

/// The same and more as a document.
pub fn document(prepared: &Prepared, outcome: &TrainOutcome) -> Result<Value, Failure> {
    let Prepared { program, source, beginning, .. } = prepared;
    // A run that was killed behind its last step ends with the records that it has left.
    let left = match &beginning.folder {
        Some(folder) if outcome.records.is_empty() => folder.steps()?,
        _ => Vec::new(),
    };
    let steps: Vec<&StepRecord> = left.iter().chain(&outcome.records).collect();
    Ok(json!({
        "model": program.model,
        "layout": layout_json(&program.layout),
        "data": source.about(),
        "losses": steps.iter().map(|step| step.loss).collect::<Vec<_>>(),
        "floor": source.floor().map(|(floor, _)| floor),
        "steps": steps,
        "ledger": {
            "predicted": outcome.predicted,
            "counted": outcome.counted,
            "equal": outcome.counted.as_ref().map(|_| outcome.difference.is_none()),
            "total": outcome.ranks.iter().map(|rank| &rank.total).collect::<Vec<_>>(),
        },
        "breakdown_s": outcome.ranks[0].breakdown,
        "breakdown_of_ranks_s": outcome.ranks.iter().map(|rank| &rank.breakdown).collect::<Vec<_>>(),
        "matmul": outcome.ranks[0].matmuls,
    }))
}
