//! Runs.

use std::path::Path;

use quadrille_run::{Host, OnEvent, Prepared, RunChanges, RunOutcome, RunSpec};

use crate::Error;

/// Trains as a specification says, on ranks that are threads. With a folder, which holds no run yet, records and
/// checkpoints are kept in it. [`RunOutcome::check`] says whether all was as predicted.
///
/// # Errors
/// A specification that cannot be run; a rank that failed; a record that cannot be written.
pub fn train(spec: RunSpec, folder: Option<&Path>, on_event: OnEvent) -> Result<RunOutcome, Error> {
    Ok(Prepared::begin(spec, folder, &Host::default())?.run(on_event)?)
}

/// Goes on with the run in a folder, from its newest checkpoint, as its own specification says but for the changes.
///
/// # Errors
/// As [`train`]; a folder without a run, or changes that the run cannot take.
pub fn resume(folder: &Path, changes: RunChanges, on_event: OnEvent) -> Result<RunOutcome, Error> {
    Ok(Prepared::resume(folder, changes, &Host::default())?.run(on_event)?)
}
