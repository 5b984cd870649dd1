//! How unequally ranks get rows of experts: a number, or what a run has counted.

use std::path::Path;

use quadrille_spec::{Imbalance, MeasuredLoads, SpecError};
use serde::Deserialize;

use crate::folder::SUMMARY;
use crate::{ExpertLoads, Refusal, RunError, documents};

/// What is read of a run's `summary.json`.
#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    expert_loads: Vec<ExpertLoads>,
}

/// Reads how unequal loads are: how many times the mean the fullest rank has, or the folder of a run that has ended. Of a run
/// all steps of its last part count together, so that what single steps have more of evens out.
///
/// # Errors
/// What is neither; a run without experts, or one that has not ended.
pub fn imbalance(said: &str) -> Result<Imbalance, RunError> {
    if let Ok(times) = said.parse() {
        return Ok(Imbalance::Times(times));
    }
    let folder = Path::new(said);
    let refused = |rule: &str| Refusal::new(format!("`search.imbalance` {said}: {rule}"));
    if !folder.is_dir() {
        return Err(refused("it is neither a number, e.g. 1.3, nor the folder of a run").into());
    }
    let text = match documents::SUMMARY.text(&folder.join(SUMMARY)) {
        Err(error) if error.is_missing() => {
            return Err(
                refused("the folder has no summary.json, which a run writes at its end; give one that has").into()
            );
        }
        text => text?,
    };
    let summary: Summary = serde_json::from_str(&text)
        .map_err(|error| refused(&format!("its summary.json says what no run writes: {error}")))?;
    if summary.expert_loads.is_empty() {
        return Err(refused("the run's model has no experts; give one that has, or a number, e.g. 1.3").into());
    }
    let blocks: Vec<&[u64]> = summary.expert_loads.iter().map(|loads| loads.chosen.as_slice()).collect();
    let loads = MeasuredLoads::new(&blocks).map_err(|error| match error {
        SpecError::Invalid { rule, remedy, .. } => refused(&format!("{rule}; {remedy}")).into(),
        other => RunError::from(other),
    })?;
    Ok(Imbalance::Measured(loads))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn numbers_and_folders_are_read_and_all_else_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let refusal = |said: &str| imbalance(said).unwrap_err().to_string();
        assert_eq!(imbalance("1.5").unwrap(), Imbalance::Times(1.5));
        assert!(refusal("runs/none").contains("neither a number"));
        assert!(refusal(&path).contains("at its end"));
        for (summary, words) in [
            ("{}", "no experts"),
            ("{\"expert_loads\": 3}", "what no run writes"),
            ("{\"expert_loads\": [{\"block\": 0, \"chosen\": [0, 0]}]}", "another run"),
        ] {
            fs::write(folder.path().join(SUMMARY), summary).unwrap();
            let message = refusal(&path);
            assert!(message.contains(words) && message.contains(&path), "{message}");
        }
        fs::write(folder.path().join(SUMMARY), "{\"expert_loads\": [{\"block\": 0, \"chosen\": [6, 0, 1, 1]}]}")
            .unwrap();
        let measured = imbalance(&path).unwrap();
        assert_eq!([2, 4].map(|ranks| measured.times(ranks)), [1.5, 3.0]);
    }
}
