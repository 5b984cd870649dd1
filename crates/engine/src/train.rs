//! A training run: what it is told, what it tells, and what comes out of it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quadrille_checkpoint::Checkpoint;
use quadrille_comm::{JobOptions, World, run_job};
use quadrille_spec::{Algorithm, AxesLedger, Choice, Ledger, LedgerDifference, RankLedger, Routing};
use quadrille_step::{StepProgram, predict_routed};
use serde::{Deserialize, Serialize};

use crate::{
    Backend, BatchSource, DivergencePolicy, EngineError, Evaluation, Hyper, MatmulChoices, RankTrace, Saving, rank_run,
};

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
            threads: 1,
            timeout: Duration::from_secs(300),
            collectives: Choice::Always(Algorithm::Native),
            world: None,
            tune_matmuls: false,
            matmuls: None,
            trace: false,
            divergence: DivergencePolicy::default(),
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

/// What a run tells as it goes.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// A step is done.
    Step(&'a StepRecord),
    /// A step's gradient was not applied, and the run goes on.
    Skipped {
        /// The step.
        step: u64,
        /// What was wrong, and where it came from.
        reason: String,
    },
    /// A step's gradient was not applied, and the run ends with an error.
    Diverged {
        /// The step.
        step: u64,
        /// What was wrong, and where it came from.
        reason: String,
    },
    /// The loss over the validation samples, after a step.
    Validated(u64, Evaluation),
    /// The checkpoint of a step is complete.
    Saved {
        /// The step.
        step: u64,
        /// Why older checkpoints could not be removed, if so.
        unremoved: Option<String>,
    },
    /// The checkpoint of a step could not be written, and the run goes on.
    NotSaved {
        /// The step.
        step: u64,
        /// Why.
        reason: String,
    },
    /// The run ends after this step, as it was asked to.
    Stopped(u64),
}

/// A step as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// From 1.
    pub step: u64,
    /// Mean loss in nats; null in JSON where it is not finite.
    #[serde(with = "crate::not_finite")]
    pub loss: f64,
    /// Global gradient norm before clipping; null in JSON where it is not finite.
    #[serde(with = "crate::not_finite")]
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Target tokens up to and with this step.
    pub tokens: u64,
    /// Seconds that this step took.
    pub seconds: f64,
    /// This step's target tokens per second.
    pub tokens_per_second: f64,
    /// Whether the gradient was applied.
    pub applied: bool,
    /// Whether the loss stands out from those before.
    pub spike: bool,
}

/// Operation kinds in which a rank waits for others: collectives that computation did not hide, messages of a pipeline,
/// and sums over ranks of single numbers.
pub const WAITING: [&str; 5] = ["wait", "wait-carried", "reduce-scalar", "receive", "release"];

/// What a step took on one rank, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RankStep {
    /// From its begin to its end on this rank.
    pub seconds: f64,
    /// Of them, in operations.
    pub operations: f64,
    /// Of those, in operations of [`WAITING`].
    pub waiting: f64,
}

impl RankStep {
    /// A step of so many seconds, by what its operation kinds took.
    pub(crate) fn new(seconds: f64, breakdown: &BTreeMap<&'static str, f64>) -> Self {
        let waiting = WAITING.iter().filter_map(|name| breakdown.get(name)).sum();
        Self { seconds, operations: breakdown.values().sum(), waiting }
    }
}

/// What one rank reports at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankReport {
    /// The last step's counted ledger; `None` after no step.
    pub ledger: Option<RankLedger>,
    /// Transfers of all steps.
    pub total: AxesLedger,
    /// The first count of any step that was not the predicted one.
    pub difference: Option<LedgerDifference>,
    /// Every step's time on this rank; ranks of a pipeline end a step at different times.
    pub steps: Vec<RankStep>,
    /// Seconds per operation kind, over all steps but the first.
    pub breakdown: BTreeMap<String, f64>,
    /// Choices of tuned products.
    pub matmuls: MatmulChoices,
    /// The last step, if it was to be recorded.
    pub trace: Option<RankTrace>,
    pub(crate) records: Vec<StepRecord>,
}

/// What a job gave.
#[derive(Debug, Clone)]
pub struct TrainOutcome {
    /// Every step.
    pub records: Vec<StepRecord>,
    /// The predicted ledgers of a step.
    pub predicted: Ledger,
    /// The counted ledgers of the last step; `None` where no step was left to do.
    pub counted: Option<Ledger>,
    /// The first count of any rank and step that was not the predicted one; `None` where all were, as integers.
    pub difference: Option<LedgerDifference>,
    /// By rank.
    pub ranks: Vec<RankReport>,
}

/// Trains up to the last step. Of a run that has done it already, what follows the last step is done: the validation.
/// `on_event` is told on rank 0 what happens, and may stop the job by an error. Where ranks are
/// processes, all of them call this alike, `on_event` is called in rank 0's, and all get the whole outcome.
///
/// # Errors
/// The first rank's failure, with its layer and operation; a loss that cannot be used; a checkpoint that cannot be read, or
/// not written, where the run is to stop then.
pub fn train<B: Backend>(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
    validation: Option<&Validation>,
    on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
) -> Result<TrainOutcome, EngineError> {
    let routing = Routing::of(&program.layout, &options.collectives);
    let predicted = predict_routed(program, &routing);
    let on_event = Mutex::new(on_event);
    let ranks = program.layout.grid.ranks();
    let world = options.world.clone();
    let job = JobOptions { timeout: options.timeout, routing, world, ..JobOptions::new(ranks) };
    let ranks = run_job(&job, |context| {
        let mut tell = |event: RunEvent| match on_event.lock() {
            _ if context.rank() != 0 => Ok(()),
            Ok(mut tell) => tell(event),
            Err(poisoned) => poisoned.into_inner()(event),
        };
        Ok(rank_run::run::<B>(
            program,
            options,
            batch,
            validation,
            context,
            &predicted.ranks[context.rank()],
            &mut tell,
        )?)
    })?;
    let counted: Option<Vec<RankLedger>> = ranks.iter().map(|rank| rank.ledger.clone()).collect();
    let counted = counted.map(|ranks| Ledger { ranks });
    let difference = ranks.iter().find_map(|rank| rank.difference.clone());
    Ok(TrainOutcome { records: ranks[0].records.clone(), predicted, counted, difference, ranks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_a_part_of_a_steps_operations() {
        let breakdown = BTreeMap::from([("gemm", 4.0), ("issue", 0.5), ("receive", 1.0), ("wait", 2.0)]);
        assert_eq!(RankStep::new(8.0, &breakdown), RankStep { seconds: 8.0, operations: 7.5, waiting: 3.0 });
    }
}
