//! From flags to what decides a run.

use quadrille_checkpoint::Checkpoint;
use quadrille_engine::Hyper;
use quadrille_run::{LayoutDefaults, OptimizerSpec, RunChanges, RunSpec, StartSpec, TuningSpec};

use super::arguments::TrainArguments;
use crate::failure::Failure;
use crate::launch::Launch;

/// The model where none is named.
pub const MODEL: &str = "gpt-demo";

/// What decides a new run.
///
/// # Errors
/// The first flag or file that cannot be used.
pub fn spec(arguments: &TrainArguments, launch: &Launch) -> Result<RunSpec, Failure> {
    let usual = OptimizerSpec::from(Hyper::default());
    let settings = match &arguments.from {
        Some(path) => {
            let checkpoint = Checkpoint::find(path).map_err(|error| Failure::Run(error.into()))?;
            arguments.model.settings_of(&checkpoint.about().model, usual)?
        }
        None => arguments.model.settings(MODEL, usual)?,
    };
    let typed = arguments.layout.said(arguments.dtype).open(&launch.defaults(&LayoutDefaults::USUAL)?)?;
    let layout = typed.spec(&settings.model, arguments.layout.cluster());
    let layout = match arguments.from {
        Some(_) => layout?,
        None => arguments.layout.held(&arguments.model, MODEL, layout)?,
    };
    let usual = RunSpec::new(settings.model, layout.layout.clone());
    let changes = RunChanges {
        layout: Some(layout),
        tiers: Some(typed.cluster.tiers),
        optimizer: Some(arguments.run.with_rate(settings.optimizer)?),
        ..said(arguments)
    };
    Ok(changes.apply(usual))
}

/// What was typed, but for the model, the layout and the optimizer, which are told in terms of others.
pub fn said(arguments: &TrainArguments) -> RunChanges {
    RunChanges {
        start: arguments.from.clone().map(StartSpec::Parameters),
        steps: arguments.steps,
        seed: arguments.run.seed,
        data: arguments.data.said(),
        validate_every: arguments.validate_every,
        validation_batches: arguments.validation_batches,
        checkpoint_every: arguments.checkpoint_every,
        keep: arguments.keep,
        on_save_failure: arguments.on_checkpoint_failure,
        on_divergence: arguments.on_divergence,
        largest_loss: arguments.largest_loss,
        loss_scale: arguments.loss_scale,
        collectives: arguments.run.collectives,
        tuning: arguments.tune_matmul.clone().map(|file| file.map_or(TuningSpec::Measure, TuningSpec::File)),
        states: arguments.layout.flags.states.clone(),
        threads: arguments.run.threads,
        timeout: arguments.run.timeout,
        log: arguments.log.clone(),
        trace: arguments.trace.clone(),
        ..RunChanges::default()
    }
}
