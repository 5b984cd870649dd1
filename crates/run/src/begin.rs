//! What a run begins with: its folder, its model, and the state that it takes from a checkpoint.

use std::sync::Arc;

use quadrille_checkpoint::{Checkpoint, CheckpointError};
use quadrille_engine::{Hyper, Start};
use quadrille_spec::ElementType;

use crate::failure::Failure;
use crate::launch::Launch;
use crate::run_folder::{RunFolder, checkpoints};
use crate::settings::{Defaults, Settings, settings, settings_of};
use crate::train::arguments::TrainArguments;

/// What is known before ranks start.
pub struct Beginning {
    /// The run's folder, if it has one; only the first process holds it.
    pub folder: Option<RunFolder>,
    /// The model and the constants of training.
    pub settings: Settings,
    /// Where parameters come from.
    pub start: Start,
}

impl Beginning {
    /// Locks the run's folder and opens the checkpoint that the run begins with.
    ///
    /// # Errors
    /// A folder that another run writes, or that holds the wrong thing; a damaged checkpoint; one of another model.
    pub fn new(arguments: &TrainArguments, launch: &Launch) -> Result<Self, Failure> {
        let folder = match (&arguments.out, &arguments.resume) {
            _ if !launch.is_first() => None,
            (Some(path), _) => Some(RunFolder::create(path)?),
            (None, Some(path)) => Some(RunFolder::resume(path)?),
            (None, None) => None,
        };
        launch.meet()?;
        let newest = match &arguments.resume {
            Some(path) => checkpoints(path).newest().map_err(unreadable)?.map(Arc::new),
            None => None,
        };
        let from = match (&arguments.from, &newest) {
            (Some(path), None) => Some(Arc::new(Checkpoint::find(path).map_err(unreadable)?)),
            _ => None,
        };
        // A run that began with the parameters of another checkpoint has that one's model, and so have its own.
        let of = newest.as_ref().filter(|_| arguments.from.is_some()).or(from.as_ref());
        let settings = match of {
            Some(checkpoint) => settings_of(&checkpoint.about().model, &arguments.model, Hyper::default())?,
            None => settings(&arguments.model, "gpt-demo", Hyper::default())?,
        };
        let start = match (newest, from) {
            (Some(checkpoint), _) => {
                check_same(&checkpoint, &settings, arguments)?;
                Start::Resumed(checkpoint)
            }
            (None, Some(checkpoint)) => Start::Values(checkpoint),
            (None, None) => Start::Drawn,
        };
        Ok(Self { folder, settings, start })
    }

    /// The checkpoint that the run begins with.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        match &self.start {
            Start::Drawn => None,
            Start::Values(checkpoint) | Start::Resumed(checkpoint) => Some(checkpoint),
        }
    }

    /// A run that goes on keeps its batch, on whatever ranks.
    pub fn defaults(&self) -> Defaults {
        let batch = match &self.start {
            Start::Resumed(checkpoint) => {
                let layout = &checkpoint.about().layout;
                Some([layout.global_batch, layout.seq_len])
            }
            Start::Drawn | Start::Values(_) => None,
        };
        Defaults { batch, ..Defaults::USUAL }
    }

    /// Refuses what the checkpoint would have to be rounded to.
    pub fn check_type(&self, dtype: ElementType) -> Result<(), Failure> {
        match self.checkpoint() {
            Some(checkpoint) if checkpoint.about().dtype == ElementType::F64 && dtype == ElementType::F32 => {
                Err(Failure::usage(format!(
                    "{} holds f64 and the run is in f32; use --dtype f64, or round it once with checkpoint merge --dtype f32",
                    checkpoint.path().display()
                )))
            }
            _ => Ok(()),
        }
    }
}

fn unreadable(error: CheckpointError) -> Failure {
    Failure::Run(error.into())
}

/// Refuses to go on with another model, or other random numbers, than the checkpoint is of.
fn check_same(checkpoint: &Checkpoint, settings: &Settings, arguments: &TrainArguments) -> Result<(), Failure> {
    let about = checkpoint.about();
    let path = checkpoint.path().display();
    if about.model != settings.model {
        return Err(Failure::usage(format!(
            "{path} is of the model {}, and the command line describes another one; leave --model and --set of the model as \
             they were, or begin a new run with --from",
            about.model.name
        )));
    }
    if about.seed != arguments.run.seed {
        return Err(Failure::usage(format!(
            "{path} was written with --seed {}, and now it is {}; leave it out, or begin a new run with --from",
            about.seed, arguments.run.seed
        )));
    }
    Ok(())
}
