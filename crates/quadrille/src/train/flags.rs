//! From flags to what decides a run.

use quadrille_checkpoint::Checkpoint;
use quadrille_engine::{Hyper, OnDivergence, OnSaveFailure};
use quadrille_run::{LayoutSpec, OptimizerSpec, RunChanges, RunSpec, StartSpec, TuningSpec};
use quadrille_spec::{Field, Model, Tier};

use super::arguments::{DivergenceAction, SaveFailureAction, TrainArguments};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::settings::{self, Defaults, Typed};

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
            settings::settings_of(&checkpoint.about().model, &arguments.model, usual)?
        }
        None => settings::settings_with(&arguments.model, MODEL, usual)?,
    };
    let typed = settings::typed(&arguments.layout, arguments.dtype, &launch.defaults(&Defaults::USUAL)?)?;
    let Chosen { layout, tiers } = chosen(&typed, &settings.model, arguments.layout.cluster())?;
    let usual = RunSpec::new(settings.model, layout.layout.clone());
    let changes = RunChanges {
        layout: Some(layout),
        tiers: Some(tiers),
        optimizer: Some(settings::with_rate(settings.optimizer, &arguments.run)?),
        ..said(arguments)
    };
    Ok(changes.apply(usual))
}

/// A layout, with the networks by which its collectives find their algorithms.
pub struct Chosen {
    /// The layout.
    pub layout: LayoutSpec,
    /// Those of its cluster.
    pub tiers: Vec<Tier>,
}

/// The layout that was typed, on the cluster of that name.
///
/// # Errors
/// A rule of layouts that is broken; a cluster for which no grid can be chosen.
pub fn chosen(typed: &Typed, model: &Model, cluster: &str) -> Result<Chosen, Failure> {
    let layout = settings::resolve(typed, model)?;
    let layout = LayoutSpec { layout, open: open(typed), cluster: cluster.to_owned() };
    Ok(Chosen { layout, tiers: typed.cluster.tiers.clone() })
}

/// The choices that nobody has typed, and that follow from others.
pub fn open(typed: &Typed) -> Vec<Field> {
    let is_open = |field: &Field| match field {
        Field::Grid => typed.auto,
        field => typed.said.get(*field).is_none(),
    };
    LayoutSpec::MAY_FOLLOW.into_iter().filter(is_open).collect()
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
        on_save_failure: arguments.on_checkpoint_failure.map(|action| match action {
            SaveFailureAction::Stop => OnSaveFailure::Stop,
            SaveFailureAction::Continue => OnSaveFailure::Continue,
        }),
        on_divergence: arguments.on_divergence.map(|action| match action {
            DivergenceAction::Stop => OnDivergence::Stop,
            DivergenceAction::Skip => OnDivergence::Skip,
        }),
        largest_loss: arguments.largest_loss,
        loss_scale: arguments.loss_scale,
        collectives: arguments.run.collectives,
        tuning: arguments.tune_matmul.clone().map(|file| file.map_or(TuningSpec::Measure, TuningSpec::File)),
        threads: arguments.run.threads,
        timeout: arguments.run.timeout,
        log: arguments.log.clone(),
        trace: arguments.trace.clone(),
        ..RunChanges::default()
    }
}
