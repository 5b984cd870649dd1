//! What a run begins with: its folder, and the state that it takes from a checkpoint.

use std::path::Path;
use std::sync::Arc;

use quadrille_checkpoint::Checkpoint;
use quadrille_engine::Start;
use quadrille_spec::{ElementType, RealType};

use crate::folder::{RunFolder, checkpoints};
use crate::refusal::{Refusal, Setting};
use crate::{Processes, RunError, RunSpec, StartSpec};

/// Where a run leaves its files.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Nowhere.
    Nowhere,
    /// In a folder that holds no run.
    New(&'a Path),
    /// In the folder of a run that goes on.
    Resumed(&'a Path),
}

impl<'a> Place<'a> {
    /// The folder.
    pub(crate) fn path(self) -> Option<&'a Path> {
        match self {
            Self::Nowhere => None,
            Self::New(path) | Self::Resumed(path) => Some(path),
        }
    }
}

/// What is known before ranks start.
pub(crate) struct Beginning {
    /// The run's folder, if it has one; only the first process holds it.
    pub(crate) folder: Option<RunFolder>,
    /// Where parameters come from.
    pub(crate) start: Start,
}

impl Beginning {
    /// Locks the run's folder and opens the checkpoint that the run begins with.
    ///
    /// # Errors
    /// A folder that another run writes, or that holds the wrong thing; a damaged checkpoint; one of another model.
    pub(crate) fn new(spec: &RunSpec, place: Place, processes: &Processes) -> Result<Self, RunError> {
        let folder = match place {
            _ if !processes.is_first() => None,
            Place::New(path) => Some(RunFolder::create(path)?),
            Place::Resumed(path) => Some(RunFolder::resume(path)?),
            Place::Nowhere => None,
        };
        processes.meet()?;
        let newest = match place {
            Place::Resumed(path) => checkpoints(path).newest()?,
            Place::New(_) | Place::Nowhere => None,
        };
        let start = match (newest, &spec.start) {
            (Some(checkpoint), _) => {
                check_same(&checkpoint, spec)?;
                Start::Resumed(Arc::new(checkpoint))
            }
            (None, StartSpec::Parameters(path)) => {
                let checkpoint = Checkpoint::find(path)?;
                Start::Values(Arc::new(checkpoint))
            }
            (None, StartSpec::Drawn) => Start::Drawn,
        };
        let beginning = Self { folder, start };
        beginning.check_type(spec.layout.layout.dtype)?;
        Ok(beginning)
    }

    /// The checkpoint that the run begins with.
    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        match &self.start {
            Start::Drawn => None,
            Start::Values(checkpoint) | Start::Resumed(checkpoint) => Some(checkpoint),
        }
    }

    /// Refuses what the checkpoint would have to be rounded to.
    fn check_type(&self, dtype: ElementType) -> Result<(), Refusal> {
        match self.checkpoint() {
            Some(checkpoint) if checkpoint.about().dtype == RealType::F64 && dtype.real() == RealType::F32 => {
                let rule = format!("{} holds f64 and the run is in {dtype}; use ", checkpoint.path().display());
                let refusal = Refusal::new(rule).name(Setting::Dtype);
                let refusal = refusal.text(" f64, or round it once with checkpoint merge ").name(Setting::Dtype);
                Err(refusal.text(" f32"))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses to go on with another model, or other random numbers, than the checkpoint is of.
fn check_same(checkpoint: &Checkpoint, spec: &RunSpec) -> Result<(), Refusal> {
    let about = checkpoint.about();
    let path = checkpoint.path().display();
    let anew = |refusal: Refusal| Err(refusal.text(", or begin a new run with ").name(Setting::From));
    if about.model != spec.model {
        let refusal = Refusal::new(format!("{path} is of the model {}, and ", about.model.name)).name(Setting::Changes);
        return anew(refusal.text(" describes another one; leave ").name(Setting::Model).text(" as before"));
    }
    if about.seed != spec.seed {
        let refusal = Refusal::new(format!("{path} was written with ")).name(Setting::Seed);
        return anew(refusal.text(format!(" {}, and now it is {}; leave it out", about.seed, spec.seed)));
    }
    Ok(())
}
