//! How often each expert was chosen.

use quadrille_run::ExpertLoads;
use serde_json::{Value, json};

use super::read::Run;

/// By block, of those whose experts were chosen in the run's last part.
pub fn loads(run: &Run) -> Value {
    let all = run.summary.as_ref().map(|summary| summary.expert_loads.as_slice()).unwrap_or_default();
    let chosen = all.iter().filter(|loads| loads.chosen.iter().any(|chosen| *chosen > 0));
    chosen.map(|ExpertLoads { block, chosen }| json!({ "block": block, "chosen": chosen })).collect()
}
