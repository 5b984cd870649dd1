//! The training loop: ranks, steps, records, and the comparison of the two ledgers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use quadrille_comm::{JobOptions, RankContext, World, run_job};
use quadrille_spec::{AxesLedger, Choice, Ledger, RankLedger, Routing};
use quadrille_step::{StepProgram, predict_routed};
use serde::{Deserialize, Serialize};

use crate::{BatchSource, EngineError, Hyper, InitialValues, MatmulChoices, RankEngine, RankTrace, Real};

/// How a job is run.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Optimizer steps.
    pub steps: u64,
    /// Optimizer and schedule.
    pub hyper: Hyper,
    /// Keys initial values and dropout.
    pub seed: u64,
    /// What parameters start from.
    pub initial: InitialValues,
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
}

/// A step as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// From 1.
    pub step: u64,
    /// Mean loss in nats.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Target tokens up to and with this step.
    pub tokens: u64,
    /// Seconds that this step took.
    pub seconds: f64,
    /// This step's target tokens per second.
    pub tokens_per_second: f64,
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
    fn new(seconds: f64, breakdown: &BTreeMap<&'static str, f64>) -> Self {
        let waiting = WAITING.iter().filter_map(|name| breakdown.get(name)).sum();
        Self { seconds, operations: breakdown.values().sum(), waiting }
    }
}

/// What one rank reports at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankReport {
    /// The last step's counted ledger.
    pub ledger: RankLedger,
    /// Transfers of all steps.
    pub total: AxesLedger,
    /// Steps whose counted ledger was not the predicted one.
    pub unequal_steps: u64,
    /// Every step's time on this rank; ranks of a pipeline end a step at different times.
    pub steps: Vec<RankStep>,
    /// Seconds per operation kind, over all steps but the first.
    pub breakdown: BTreeMap<String, f64>,
    /// Choices of tuned products.
    pub matmuls: MatmulChoices,
    /// The last step, if it was to be recorded.
    pub trace: Option<RankTrace>,
    records: Vec<StepRecord>,
}

/// What a job gave.
#[derive(Debug, Clone)]
pub struct TrainOutcome {
    /// Every step.
    pub records: Vec<StepRecord>,
    /// The predicted ledgers of a step.
    pub predicted: Ledger,
    /// The counted ledgers of the last step.
    pub counted: Ledger,
    /// Whether the two were equal, as integers, on every rank in every step.
    pub ledger_equal: bool,
    /// By rank.
    pub ranks: Vec<RankReport>,
}

/// Trains for some steps; `on_step` sees each step's record as rank 0 finishes it, and may stop the job by an error. Where
/// ranks are processes, all of them call this alike, `on_step` is called in rank 0's, and all get the whole outcome.
///
/// # Errors
/// The first rank's failure, with its layer and operation; a loss that is not finite.
pub fn train<T: Real>(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
    on_step: &mut (dyn FnMut(&StepRecord) -> Result<(), EngineError> + Send),
) -> Result<TrainOutcome, EngineError> {
    let routing = Routing::of(&program.layout, &options.collectives);
    let predicted = predict_routed(program, &routing);
    let on_step = Mutex::new(on_step);
    let ranks = program.layout.grid.ranks();
    let world = options.world.clone();
    let job = JobOptions { timeout: options.timeout, routing, world, ..JobOptions::new(ranks) };
    let ranks = run_job(&job, |context| {
        let mut tell = |record: &StepRecord| match on_step.lock() {
            _ if context.rank() != 0 => Ok(()),
            Ok(mut tell) => tell(record),
            Err(poisoned) => poisoned.into_inner()(record),
        };
        Ok(run_rank::<T>(program, options, batch, context, &predicted.ranks[context.rank()], &mut tell)?)
    })?;
    let counted = Ledger { ranks: ranks.iter().map(|rank| rank.ledger.clone()).collect() };
    let ledger_equal = ranks.iter().all(|rank| rank.unequal_steps == 0);
    Ok(TrainOutcome { records: ranks[0].records.clone(), predicted, counted, ledger_equal, ranks })
}

fn run_rank<T: Real>(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
    context: &RankContext,
    predicted: &RankLedger,
    tell: &mut dyn FnMut(&StepRecord) -> Result<(), EngineError>,
) -> Result<RankReport, EngineError> {
    let mut engine =
        RankEngine::<T>::new(program, context, options.threads, options.hyper, options.seed, options.initial)?;
    if let Some(choices) = &options.matmuls {
        engine.use_matmuls(choices.clone());
    } else if options.tune_matmuls {
        engine.tune_matmuls()?;
    }
    let tokens = program.layout.tokens_per_step() as u64;
    let mut ledger = predicted.clone();
    let mut total = AxesLedger::new();
    let mut unequal_steps = 0;
    let (mut records, mut steps) = (Vec::new(), Vec::new());
    let mut breakdown: BTreeMap<&'static str, f64> = BTreeMap::new();
    for step in 1..=options.steps {
        if options.trace && step == options.steps {
            engine.record_spans(true);
        }
        let start = Instant::now();
        let outcome = engine.step(batch)?;
        let seconds = start.elapsed().as_secs_f64();
        let of_step = engine.take_breakdown();
        steps.push(RankStep::new(seconds, &of_step));
        if step > 1 {
            of_step.into_iter().for_each(|(name, seconds)| *breakdown.entry(name).or_default() += seconds);
        }
        ledger = engine.take_ledger();
        unequal_steps += u64::from(ledger != *predicted);
        for (axes, kinds) in &ledger.axes {
            for (kind, transfer) in kinds {
                *total.entry(axes.clone()).or_default().entry(*kind).or_default() += *transfer;
            }
        }
        let record = StepRecord {
            step,
            loss: outcome.loss,
            grad_norm: outcome.gradient_norm,
            lr: outcome.learning_rate,
            tokens: step * tokens,
            seconds,
            tokens_per_second: tokens as f64 / seconds,
        };
        for (quantity, value) in [("loss", outcome.loss), ("gradient norm", outcome.gradient_norm)] {
            if !value.is_finite() {
                return Err(EngineError::Diverged { step, quantity, value });
            }
        }
        tell(&record)?;
        records.push(record);
    }
    Ok(RankReport {
        ledger,
        total,
        unequal_steps,
        steps,
        breakdown: breakdown.into_iter().map(|(name, seconds)| (name.to_owned(), seconds)).collect(),
        matmuls: engine.matmuls.clone(),
        trace: options.trace.then(|| RankTrace::new(engine.take_spans(), context.take_spans())),
        records,
    })
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
