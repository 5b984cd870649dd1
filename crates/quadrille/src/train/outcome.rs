//! What a run says to people at its end.

use quadrille_engine::TrainOutcome;
use quadrille_step::StepProgram;

use crate::explain::ledger_text;

/// What was tuned, and the ledger of the last step.
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
