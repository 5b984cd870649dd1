//! How often each expert was chosen.

use quadrille_run::ExpertLoads;

use super::read::Run;

/// By block, of those whose experts were chosen in the run's last part.
pub fn loads(run: &Run) -> Vec<ExpertLoads> {
    let all = run.summary.as_ref().map(|summary| summary.expert_loads.as_slice()).unwrap_or_default();
    all.iter().filter(|loads| loads.chosen.iter().any(|chosen| *chosen > 0)).cloned().collect()
}
