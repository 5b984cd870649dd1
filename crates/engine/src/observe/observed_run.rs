//! Short runs on random samples of which everything is kept: what proofs hold against the serial model, and each other.

use std::path::PathBuf;
use std::time::Duration;

use quadrille_comm::{JobOptions, World, run_job};
use quadrille_spec::{Choice, RankLedger, Routing};
use quadrille_step::{Loads, StepProgram};
use serde::{Deserialize, Serialize};

use crate::optimizer::loss_scale;
use crate::{
    Backend, Chosen, EngineError, Evaluation, Held, Hyper, InitialValues, Masks, RankEngine, StepOutcome, random_batch,
};

/// What is run.
#[derive(Debug, Clone)]
pub struct ObserveOptions<'a> {
    /// Optimizer steps.
    pub steps: u64,
    /// Whether every step's shards are kept, for which the rank waits for what it has under way; else those of the last.
    pub every_step: bool,
    /// The program of an evaluation after the last step, and how many samples it goes over; `None`: there is none.
    pub evaluation: Option<(&'a StepProgram, u64)>,
    /// Keys weights, samples and dropout.
    pub seed: u64,
    /// Of a pruned model's program.
    pub masks: Option<Masks>,
    /// Optimizer and schedule.
    pub hyper: Hyper,
    /// [`TrainOptions::states`](crate::TrainOptions::states).
    pub states: Option<PathBuf>,
    /// Threads of each rank.
    pub threads: usize,
    /// How long a collective may wait for a rank.
    pub timeout: Duration,
    /// By which algorithms collectives run.
    pub collectives: Choice,
    /// Where ranks are processes; `None`: they are threads of this one.
    pub world: Option<World>,
}

/// A rank's step. Shards are in f64, by parameter of the rank's stage; empty where they are not kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObservedStep {
    /// What it gave.
    pub outcome: StepOutcome,
    /// Complete gradients, before clipping.
    pub gradients: Vec<Held>,
    /// After the update.
    pub weights: Vec<Held>,
    /// Of the parameters that have a master copy.
    pub masters: Vec<Option<Held>>,
    /// The experts that the rank's tokens have chosen.
    pub choices: Vec<Chosen>,
    /// The rows that the rank's experts got, where they drop nothing.
    pub loads: Loads,
    /// What was counted.
    pub ledger: RankLedger,
}

/// A rank's run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Observed {
    /// Weights before the first step.
    pub start: Vec<Held>,
    /// By step.
    pub steps: Vec<ObservedStep>,
    /// After the last step, with what was counted of its last batch.
    pub evaluation: Option<(Evaluation, Option<(RankLedger, Loads)>)>,
}

/// Runs the steps from perturbed initial values; the runs of all ranks, in their order.
///
/// # Errors
/// A rank that failed.
pub fn observe<B: Backend>(program: &StepProgram, options: &ObserveOptions) -> Result<Vec<Observed>, EngineError> {
    let routing = Routing::of(&program.layout, &options.collectives);
    let batch = random_batch(&program.model, options.seed, program.layout.seq_len);
    let ranks = program.layout.grid.ranks();
    let job = JobOptions { timeout: options.timeout, routing, world: options.world.clone(), ..JobOptions::new(ranks) };
    Ok(run_job(&job, |context| {
        let ObserveOptions { threads, hyper, seed, .. } = *options;
        let initial = InitialValues::Perturbed;
        let states = options.states.as_deref();
        let mut engine = RankEngine::<B>::with_states_in(program, context, threads, hyper, seed, initial, states)?;
        options.masks.as_ref().map_or(Ok(()), |masks| engine.prune(masks, initial))?;
        engine.set_loss_scale(loss_scale::steady(program));
        engine.record_choices(true);
        let start = engine.weights()?;
        let mut steps = Vec::new();
        for step in 1..=options.steps {
            let outcome = engine.step(&batch)?;
            let ledger = engine.take_ledger();
            let loads = engine.take_loads();
            let choices = engine.take_choices();
            let mut gradients = Vec::new();
            let mut weights = Vec::new();
            let mut masters = Vec::new();
            if options.every_step || step == options.steps {
                (gradients, weights, masters) = (engine.gradients()?, engine.weights()?, engine.masters()?);
            }
            steps.push(ObservedStep { outcome, gradients, weights, masters, choices, loads, ledger });
        }
        let evaluation = match options.evaluation {
            None => None,
            Some((forward, samples)) => {
                let mut evaluator = engine.evaluator(forward)?;
                let evaluation = engine.evaluate(&mut evaluator, samples, &batch)?;
                Some((evaluation, evaluator.counted().cloned()))
            }
        };
        Ok(Observed { start, steps, evaluation })
    })?)
}
