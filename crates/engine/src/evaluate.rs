//! The loss without training: between the steps of a training run, on its weights, or in a run of its own.

use std::time::{Duration, Instant};

use quadrille_comm::{JobOptions, World, run_job};
use quadrille_spec::{Algorithm, Choice, Ledger, LedgerDifference, RankLedger, Routing};
use quadrille_step::{Loads, StepProgram, Verdict};
use serde::{Deserialize, Serialize};

use crate::state::borrower::Borrower;
use crate::{Backend, BatchSource, EngineError, Predictions, RankEngine, Weights};

/// How a job without training is run.
#[derive(Debug, Clone)]
pub struct ForwardOptions {
    /// Threads of each rank's pool.
    pub threads: usize,
    /// How long a collective may wait for a rank.
    pub timeout: Duration,
    /// By which algorithms collectives run.
    pub collectives: Choice,
    /// Where ranks are processes; `None`: they are threads of this one.
    pub world: Option<World>,
}

impl Default for ForwardOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            timeout: Duration::from_secs(600),
            collectives: Choice::Always(Algorithm::Native),
            world: None,
        }
    }
}

impl ForwardOptions {
    /// The job of a program's ranks.
    pub(crate) fn job(&self, program: &StepProgram) -> JobOptions {
        let routing = Routing::of(&program.layout, &self.collectives);
        let world = self.world.clone();
        JobOptions { timeout: self.timeout, routing, world, ..JobOptions::new(program.layout.grid.ranks()) }
    }
}

/// The loss over some samples, equal on every rank, and in every layout but for rounding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Mean over all targets that are not ignored, in nats, or over all numbers of all patches.
    pub loss: f64,
    /// How many there were.
    pub targets: u64,
    /// Samples; each counts once.
    pub samples: u64,
    /// Batches, the last of which may have fewer samples than the others.
    pub steps: u64,
}

impl Evaluation {
    /// `e` to the loss.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

/// What a rank needs to evaluate between training steps: the memory of forward passes. Weights are the training engine's.
pub struct Evaluator<'a, B: Backend> {
    borrower: Borrower<'a, B>,
    counted: Option<(RankLedger, Loads)>,
}

impl<B: Backend> Evaluator<'_, B> {
    /// What this rank counted in the last batch, and the rows that its experts got; training steps do not count it.
    pub fn counted(&self) -> Option<&(RankLedger, Loads)> {
        self.counted.as_ref()
    }
}

impl<'a, B: Backend> RankEngine<'a, B> {
    /// Allocates what evaluation needs beside this engine's weights. `program` is [`StepProgram::evaluation`] of the
    /// model and grid that are trained; its batch may be another one.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn evaluator(&self, program: &'a StepProgram) -> Result<Evaluator<'a, B>, EngineError> {
        Ok(Evaluator { borrower: Borrower::new(self, program)?, counted: None })
    }

    /// The loss of the weights as they are, over `samples` samples; `batch` is asked for steps from 1 on. All ranks call
    /// this alike, between training steps, whose numbers and ledgers do not change by it.
    ///
    /// # Errors
    /// The job was stopped, data is missing, or no target counts.
    pub fn evaluate(
        &mut self,
        evaluator: &mut Evaluator<'a, B>,
        samples: u64,
        batch: &BatchSource,
    ) -> Result<Evaluation, EngineError> {
        let Evaluator { borrower, counted: of_last } = evaluator;
        borrower.with(self, |engine| {
            engine.evaluate_samples(samples, batch, &mut |counted, loads| {
                *of_last = Some((counted, loads));
                Ok(())
            })
        })
    }

    /// The loss over `samples` samples in an engine of an evaluation program. What the last batch lacks is filled with
    /// sequences that do not count.
    fn evaluate_samples(
        &mut self,
        samples: u64,
        batch: &BatchSource,
        see: &mut dyn FnMut(RankLedger, Loads) -> Result<(), EngineError>,
    ) -> Result<Evaluation, EngineError> {
        // Another evaluation's batches have the same numbers.
        self.interpreter.step.number = 0;
        self.interpreter.step.samples.of = None;
        let of_batch = self.interpreter.rank.program.layout.global_batch;
        let steps = samples.div_ceil(of_batch as u64);
        let mut sum = 0.0;
        let mut targets = 0;
        for step in 0..steps {
            let left = samples - step * of_batch as u64;
            self.interpreter.step.sequences = usize::try_from(left).map_or(of_batch, |left| left.min(of_batch));
            self.run_program(batch)?;
            sum += self.interpreter.step.totals.loss;
            targets += self.interpreter.step.totals.targets;
            see(self.take_ledger(), self.take_loads())?;
        }
        match targets {
            0 => Err(EngineError::NothingCounts { samples }),
            _ => Ok(Evaluation { loss: sum / targets as f64, targets, samples, steps }),
        }
    }
}

/// What a run that evaluates gave.
#[derive(Debug, Clone)]
pub struct EvaluateOutcome {
    /// The loss.
    pub evaluation: Evaluation,
    /// Seconds of all batches, without the start.
    pub seconds: f64,
    /// The predicted ledgers of the last batch.
    pub predicted: Ledger,
    /// The counted ledgers of the last batch.
    pub counted: Ledger,
    /// The first count of any rank and batch that was not the predicted one; `None` where all were, as integers.
    pub difference: Option<LedgerDifference>,
}

/// What a rank found.
#[derive(Serialize, Deserialize)]
struct RankEvaluation {
    evaluation: Evaluation,
    seconds: f64,
    predicted: RankLedger,
    ledger: RankLedger,
    difference: Option<LedgerDifference>,
}

/// Evaluates the given weights over `samples` samples, of which batch `n`, counted from 1, has those from number
/// `(n - 1) * global_batch` on; `program` is [`StepProgram::evaluation`]. `on_step` is told in the process of rank 0 how
/// many batches are done. Where ranks are processes, all of them call this alike and get the outcome.
///
/// # Errors
/// The first rank's failure, with its layer and operation; no target that counts.
pub fn evaluate<B: Backend>(
    program: &StepProgram,
    options: &ForwardOptions,
    weights: &Weights,
    samples: u64,
    batch: &BatchSource,
    on_step: &(dyn Fn(u64) + Sync),
) -> Result<EvaluateOutcome, EngineError> {
    let predictions = Predictions::new(program, &Routing::of(&program.layout, &options.collectives));
    let ranks = run_job(&options.job(program), |context| {
        let rank = context.rank();
        let mut engine = weights.engine::<B>(program, context, options.threads)?;
        let mut difference = None;
        let mut done = 0;
        let start = Instant::now();
        let mut predicted = predictions.of_rank(rank, Verdict::Kept, &Loads::new()).into_owned();
        let mut ledger = predicted.clone();
        let evaluation = engine.evaluate_samples(samples, batch, &mut |counted, loads| {
            predicted = predictions.of_rank(rank, Verdict::Kept, &loads).into_owned();
            difference = difference.take().or_else(|| predicted.difference(&counted));
            ledger = counted;
            done += 1;
            if rank == 0 {
                on_step(done);
            }
            Ok(())
        })?;
        Ok(RankEvaluation { evaluation, seconds: start.elapsed().as_secs_f64(), predicted, ledger, difference })
    })?;
    let of_ranks = |of: fn(&RankEvaluation) -> &RankLedger| Ledger { ranks: ranks.iter().map(of).cloned().collect() };
    let [predicted, counted] = [of_ranks(|rank| &rank.predicted), of_ranks(|rank| &rank.ledger)];
    let difference = ranks.iter().find_map(|rank| rank.difference.clone());
    let RankEvaluation { evaluation, seconds, .. } = ranks[0];
    Ok(EvaluateOutcome { evaluation, seconds, predicted, counted, difference })
}
