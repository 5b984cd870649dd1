//! What decides a run.

mod changes;
mod data;
mod layout;
mod optimizer;
mod text;

use std::path::{Path, PathBuf};

use quadrille_engine::{DivergencePolicy, Hyper, LossScale, OnSaveFailure};
use quadrille_spec::{Collectives, ElementType, Layout, Model, Offload, Tier};
use serde::{Deserialize, Serialize};

pub use changes::{DataChanges, DataComparison, RunChanges};
pub use data::{DataPath, DataSpec, HeldOut};
pub use layout::{LayoutSpec, layout_of_json, shown_layout};
pub use optimizer::{OptimizerSpec, Warmup};

use crate::refusal::{Refusal, Setting};
use crate::{RunError, processes};

/// Everything that decides a run, but the folder that it is in. Runs of equal specifications on data that have not changed
/// take the same steps, to the bit where ranks have the same kind of processor.
///
/// It is written into a run's folder when the run begins, so that the run goes on as it has begun, whatever later programs do
/// where nothing is said.
///
/// ```
/// use quadrille_run::RunSpec;
/// use quadrille_spec::{Layout, LayoutRequest, Model};
///
/// let model = Model::gpt(1, 8, 2, 256, 16);
/// let layout = Layout::new(&model, &LayoutRequest::new("x=2".parse()?, 4))?;
/// let spec = RunSpec { steps: 20, seed: 7, ..RunSpec::new(model, layout) };
/// let text = serde_json::to_string(&spec)?;
/// assert_eq!(serde_json::from_str::<RunSpec>(&text)?, spec);
/// assert!(serde_json::from_str::<RunSpec>(&text.replace("\"seed\"", "\"sead\"")).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "text::SpecText", into = "text::SpecText")]
pub struct RunSpec {
    /// What is trained.
    pub model: Model,
    /// How a step is spread over ranks, with its batch and the type of its values.
    pub layout: LayoutSpec,
    /// Where the parameters come from.
    pub start: StartSpec,
    /// Optimizer steps.
    pub steps: u64,
    /// Keys initial values, sampling and dropout.
    pub seed: u64,
    /// What the optimizer and the schedule of its rate are told.
    pub optimizer: OptimizerSpec,
    /// What is read.
    pub data: DataSpec,
    /// When samples are looked at that are not learned from, and how many.
    pub validation: ValidationSpec,
    /// When checkpoints are written, into the run's folder.
    pub checkpoints: CheckpointSpec,
    /// What is done about steps that cannot be applied.
    pub divergence: DivergencePolicy,
    /// By what gradients are multiplied until the update, of values in f16; `None`: they are what they are.
    pub loss_scale: Option<LossScale>,
    /// How collectives run.
    pub collectives: CollectivesSpec,
    /// In which layout products run.
    pub tuning: TuningSpec,
    /// Where the states lie that the layout offloads. It changes no bit, and may be another for each part of a run.
    pub states: StatesSpec,
    /// Threads of each rank; `None`: as many as there are cores for it, on each machine anew.
    pub threads: Option<usize>,
    /// Seconds after which a collective or a message that waits for a rank stops the job.
    pub timeout: f64,
    /// What is written beside the folder.
    pub outputs: OutputSpec,
}

/// Where the parameters of a run come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartSpec {
    /// Initial values, drawn by the seed.
    #[default]
    Drawn,
    /// A checkpoint, a folder of checkpoints or of a run, of which the newest counts. It is of the run's model.
    Parameters(PathBuf),
}

/// When samples are looked at that are not learned from; which ones, [`DataSpec::held_out`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationSpec {
    /// Steps between two validations; there is one after the last step.
    pub every: u64,
    /// Most batches of the step's size; the last is not full where there are fewer samples.
    pub batches: u64,
}

/// When checkpoints are written. A run without a folder writes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSpec {
    /// Steps between two of them; `None`: only at the end, and when the run is asked to stop.
    pub every: Option<u64>,
    /// How many are kept.
    pub keep: usize,
    /// What happens if one cannot be written.
    pub on_failure: OnSaveFailure,
}

/// How collectives run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectivesSpec {
    /// By which algorithm.
    pub algorithm: Collectives,
    /// The networks by which `auto` prices algorithms where ranks are processes, innermost first.
    pub tiers: Vec<Tier>,
}

/// In which layout products run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuningSpec {
    /// As their operands are stored.
    #[default]
    Off,
    /// In the one that is the fastest before the first step.
    Measure,
    /// As this file says, if it is there; else they are measured, and it is written at the end.
    File(PathBuf),
}

/// Where the optimizer's states lie that the layout offloads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatesSpec {
    /// In the host's memory.
    #[default]
    Memory,
    /// In a file for every rank, in this folder; they are gone with the processes.
    Files(PathBuf),
}

impl StatesSpec {
    /// The folder of the files.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::Files(folder) => Some(folder),
        }
    }

    /// Whether they lie in the host's memory.
    pub(crate) fn is_memory(&self) -> bool {
        *self == Self::Memory
    }
}

/// What a run writes beside its folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputSpec {
    /// A file with a line for every step.
    pub log: Option<PathBuf>,
    /// A file of what every rank did in the last step, and when, for `chrome://tracing` or Perfetto.
    pub trace: Option<PathBuf>,
}

impl RunSpec {
    /// Steps where nobody says how many: enough for the built-in corpus to come near its floor.
    pub const STEPS: u64 = 400;
    /// The seed where nobody says one.
    pub const SEED: u64 = 1;
    /// Seconds that a collective waits, where nobody says how many.
    pub const TIMEOUT: f64 = 300.0;

    /// A run on the built-in data, with everything else as it usually is.
    pub fn new(model: Model, layout: Layout) -> Self {
        Self {
            loss_scale: LossScale::usual(layout.dtype),
            model,
            layout: LayoutSpec::of(layout),
            start: StartSpec::default(),
            steps: Self::STEPS,
            seed: Self::SEED,
            optimizer: Hyper::default().into(),
            data: DataSpec::default(),
            validation: ValidationSpec::default(),
            checkpoints: CheckpointSpec::default(),
            divergence: DivergencePolicy::default(),
            collectives: CollectivesSpec::default(),
            tuning: TuningSpec::default(),
            states: StatesSpec::default(),
            threads: None,
            timeout: Self::TIMEOUT,
            outputs: OutputSpec::default(),
        }
    }

    /// Refuses values that no run can have; what needs a folder or other files is checked when the run is prepared.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), RunError> {
        self.model.check_next_token()?;
        self.optimizer.check()?;
        self.optimizer.hyper(self.steps)?;
        processes::timeout(self.timeout)?;
        self.data.check()?;
        self.check_loss_scale()?;
        self.check_states()?;
        let whole = |setting: Setting, number: u64| match number {
            0 => Err(Refusal::of(setting).text(" 0: it is a whole number of at least 1")),
            _ => Ok(()),
        };
        whole(Setting::CheckpointEvery, self.checkpoints.every.unwrap_or(1))?;
        whole(Setting::Keep, self.checkpoints.keep as u64)?;
        whole(Setting::ValidateEvery, self.validation.every)?;
        whole(Setting::ValidationBatches, self.validation.batches)?;
        match self.divergence.largest_loss {
            Some(factor) if factor.is_nan() || factor <= 1.0 => Err(Refusal::of(Setting::LargestLoss)
                .text(format!(" {factor}: it is a multiple of the usual loss, above 1, e.g. 3"))
                .into()),
            _ => Ok(()),
        }
    }
}

impl RunSpec {
    /// Refuses a factor that rounds, and one of gradients that need none.
    fn check_loss_scale(&self) -> Result<(), Refusal> {
        let Some(scale) = self.loss_scale else { return Ok(()) };
        let dtype = self.layout.layout.dtype;
        let refusal = Refusal::of(Setting::LossScale);
        if dtype != ElementType::F16 {
            let refusal =
                refusal.text(format!(" {scale}: gradients in {dtype} keep their range; leave it out, or use "));
            return Err(refusal.name(Setting::Dtype).text(" f16"));
        }
        if scale.is_legal() { Ok(()) } else { Err(refusal.text(format!(" {scale}: {}", LossScale::RULE))) }
    }
}

impl RunSpec {
    /// Refuses files for states that stay on the device.
    fn check_states(&self) -> Result<(), Refusal> {
        match self.states.folder() {
            Some(folder) if self.layout.layout.offload == Offload::None => {
                Err(Refusal::of(Setting::States).text(format!(
                    " {}: the layout keeps its states on the device; offload them, or leave the folder out",
                    folder.display()
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Default for ValidationSpec {
    fn default() -> Self {
        Self { every: 100, batches: 20 }
    }
}

impl Default for CheckpointSpec {
    fn default() -> Self {
        Self { every: None, keep: 3, on_failure: OnSaveFailure::Stop }
    }
}

impl Default for CollectivesSpec {
    fn default() -> Self {
        Self { algorithm: Collectives::Auto, tiers: Vec::new() }
    }
}
