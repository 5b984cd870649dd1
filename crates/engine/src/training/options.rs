//! Options of a training run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quadrille_checkpoint::Checkpoint;
use quadrille_comm::World;
use quadrille_spec::{Algorithm, Choice, Layout, Model};
use quadrille_step::StepProgram;

use crate::state::checkpoint_tiles::check_tensors;
use crate::{BatchSource, DivergencePolicy, EngineError, Hyper, LossScale, Masks, MatmulChoices, Saving};

/// How a job is run.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Optimizer steps.
    pub steps: u64,
    /// Optimizer and schedule.
    pub hyper: Hyper,
    /// Keys initial values and dropout.
    pub seed: u64,
    /// What the run starts from.
    pub start: Start,
    /// The folder in which every rank has a file of the states that the layout offloads; `None`: they lie in the host's memory.
    pub states: Option<PathBuf>,
    /// Threads of each rank's pool.
    pub threads: usize,
    /// How long a collective may wait for a rank.
    pub timeout: Duration,
    /// By which algorithms collectives run.
    pub collectives: Choice,
    /// Where ranks are processes; `None`: they are threads of this one.
    pub world: Option<World>,
    /// Whether products are timed before the first step and run in their fastest layout.
    pub tune_matmuls: bool,
    /// Choices of an earlier run, replayed.
    pub matmuls: Option<MatmulChoices>,
    /// Whether the last step's operations and communication are recorded.
    pub trace: bool,
    /// What is done about losses and gradients that cannot be used.
    pub divergence: DivergencePolicy,
    /// By what gradients are multiplied until the update; `None`: they are what they are.
    pub loss_scale: Option<LossScale>,
    /// Where and when checkpoints are written; `None`: never.
    pub saving: Option<Saving>,
    /// Set by whoever wants the run to end after the step that it is at; `None`: nobody. Ranks agree on it after every step.
    pub stop: Option<Arc<AtomicBool>>,
}

impl TrainOptions {
    /// A run of so many steps by ranks on threads, with one thread each: everything else as it usually is.
    pub fn new(steps: u64, hyper: Hyper, seed: u64) -> Self {
        Self {
            steps,
            hyper,
            seed,
            start: Start::default(),
            states: None,
            threads: 1,
            timeout: Duration::from_secs(300),
            collectives: Choice::Always(Algorithm::Native),
            world: None,
            tune_matmuls: false,
            matmuls: None,
            trace: false,
            divergence: DivergencePolicy::default(),
            loss_scale: None,
            saving: None,
            stop: None,
        }
    }
}

/// What a run starts from.
#[derive(Debug, Clone, Default)]
pub enum Start {
    /// Initial values, drawn by the run's seed.
    #[default]
    Drawn,
    /// The parameters of a checkpoint; the run begins at step 1.
    Values(Arc<Checkpoint>),
    /// A checkpoint: the run goes on where it was written.
    Resumed(Arc<Checkpoint>),
}

impl Start {
    /// Steps that are done.
    pub fn steps_done(&self) -> u64 {
        match self {
            Self::Resumed(checkpoint) => checkpoint.about().step,
            Self::Drawn | Self::Values(_) => 0,
        }
    }

    /// The step program of a run that starts so: of a pruned model, if the checkpoint says so.
    ///
    /// # Errors
    /// Those of [`StepProgram::pruned`]; a checkpoint of another model; masks that cannot be read.
    pub fn program(&self, model: &Model, layout: &Layout) -> Result<StepProgram, EngineError> {
        let whole = StepProgram::new(model, layout)?;
        let (Self::Values(checkpoint) | Self::Resumed(checkpoint)) = self else { return Ok(whole) };
        check_tensors(&whole, checkpoint)?;
        let kept = Masks::Checkpoint(Arc::clone(checkpoint)).counts(&whole)?;
        if kept.is_empty() { Ok(whole) } else { Ok(StepProgram::pruned(model, layout, kept)?) }
    }

    /// Target tokens that are consumed.
    pub(crate) fn tokens(&self) -> u64 {
        match self {
            Self::Resumed(checkpoint) => checkpoint.about().tokens,
            Self::Drawn | Self::Values(_) => 0,
        }
    }
}

/// How a run is held against samples that it does not learn from.
pub struct Validation<'a> {
    /// [`StepProgram::evaluation`] of the model and layout that are trained.
    pub program: &'a StepProgram,
    /// Steps between two validations; there is one after the last step.
    pub every: u64,
    /// Samples of each validation; each counts once.
    pub samples: u64,
    /// The samples, by step from 1 on.
    pub batch: &'a BatchSource<'a>,
}
