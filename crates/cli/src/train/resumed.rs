//! A run that goes on: as it was decided when it began, and in place of it what is said now.

use std::path::Path;

use quadrille_checkpoint::Checkpoint;
use quadrille_run::{Description, Host, Prepared, RunChanges, RunError, RunSpec, checkpoints};

use super::arguments::TrainArguments;
use super::flags;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::remark;

/// The run in `folder`, prepared to go on.
///
/// # Errors
/// A folder without a run; what the run cannot go on with.
pub fn prepare(folder: &Path, arguments: &TrainArguments, launch: &Launch, host: Host) -> Result<Prepared, Failure> {
    let description = Description::read(folder)?;
    let before = *description.spec;
    let changes = changes(&model_of(&before, folder, arguments)?, arguments, launch)?;
    let warning = stretched(folder, &before, &changes)?;
    let command = history(description.command, &host.command);
    let prepared = Prepared::resume_as(folder, before, changes, &Host { command, ..host })?;
    if let Some(warning) = warning.filter(|_| launch.is_first()) {
        remark("warning", &warning);
    }
    Ok(prepared)
}

/// What to say where another number of steps gives the next step another learning rate than it would have had.
fn stretched(folder: &Path, before: &RunSpec, changes: &RunChanges) -> Result<Option<String>, Failure> {
    let done = checkpoints(folder).newest().map_err(RunError::from)?.map_or(0, |checkpoint| checkpoint.about().step);
    let optimizer = changes.optimizer.unwrap_or(before.optimizer);
    let Some(steps) = changes.steps.filter(|steps| *steps != before.steps && optimizer.decay_steps.is_none()) else {
        return Ok(None);
    };
    let next = done + 1;
    let was = before.optimizer.learning_rate_at(next, before.steps).map_err(RunError::from)?;
    let is = optimizer.learning_rate_at(next, steps).map_err(RunError::from)?;
    Ok((was != is).then(|| {
        format!(
            "--steps {steps} in place of {} moves the end of the learning rate's schedule: step {next} has {is:.3e} instead of \
             {was:.3e}; --set decay_steps={} keeps the schedule",
            before.steps, before.steps
        )
    }))
}

/// The words by which a run was asked for, and behind each `--resume` those by which it went on, if there were any.
fn history(before: Vec<String>, now: &[String]) -> Vec<String> {
    match now {
        [] => before,
        now => before.into_iter().chain(["--resume".to_owned()]).chain(now.iter().cloned()).collect(),
    }
}

/// The run as it was decided, but that one without a checkpoint takes the model of the parameters that it is now to begin with.
fn model_of(before: &RunSpec, folder: &Path, arguments: &TrainArguments) -> Result<RunSpec, Failure> {
    let mut of = before.clone();
    if let Some(path) = &arguments.from
        && checkpoints(folder).newest().map_err(RunError::from)?.is_none()
    {
        of.model = Checkpoint::find(path).map_err(RunError::from)?.about().model.clone();
    }
    Ok(of)
}

/// What is said now. `--set` changes one constant of those that the run has.
fn changes(before: &RunSpec, arguments: &TrainArguments, launch: &Launch) -> Result<RunChanges, Failure> {
    let of = &arguments.model;
    let settings = if of.model.is_some() || of.from_hf.is_some() {
        of.settings(flags::MODEL, before.optimizer)?
    } else {
        of.settings_of(&before.model, before.optimizer)?
    };
    let said = arguments.layout.said(arguments.dtype);
    let layout = said.going_on(&before.layout, settings.model != before.model, &settings.model, launch)?;
    let (layout, tiers) = layout.unzip();
    Ok(RunChanges {
        model: Some(settings.model),
        layout,
        tiers,
        optimizer: Some(arguments.run.with_rate(settings.optimizer)?),
        ..flags::said(arguments)
    })
}
