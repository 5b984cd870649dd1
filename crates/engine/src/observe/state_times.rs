//! Steps, and the moves of offloaded states alone, in turn: what a step hides of its moves.

use std::time::Instant;

use quadrille_comm::{JobOptions, run_job};
use quadrille_spec::Routing;
use quadrille_step::{Operation, StepProgram, When};
use serde::{Deserialize, Serialize};

use crate::interpreter::Interpreter;
use crate::{Backend, BatchSource, EngineError, InitialValues, RankEngine, TrainOptions};

/// What a step takes a rank, and what its moves take alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StateTimes {
    /// Seconds of the step.
    pub step: f64,
    /// Seconds of the moves of a step that repeats nothing, and of nothing else.
    pub moves: f64,
    /// Whether the step's update was done again.
    pub repeated: bool,
}

/// The steps of the options from initial values, by rank; ranks begin each step and each moves together.
///
/// # Errors
/// A rank that failed; states that have no place.
pub fn time_states<B: Backend>(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
) -> Result<Vec<Vec<StateTimes>>, EngineError> {
    let ranks = program.layout.grid.ranks();
    let routing = Routing::of(&program.layout, &options.collectives);
    let world = options.world.clone();
    let job = JobOptions { timeout: options.timeout, routing, world, ..JobOptions::new(ranks) };
    let TrainOptions { threads, hyper, seed, .. } = *options;
    Ok(run_job(&job, |context| {
        let initial = InitialValues::Training;
        let states = options.states.as_deref();
        let mut engine = RankEngine::<B>::with_states_in(program, context, threads, hyper, seed, initial, states)?;
        let mut times = Vec::new();
        for _ in 0..options.steps {
            engine.interpreter.communicators.largest_of_all(vec![0.0])?;
            let start = Instant::now();
            let repeated = engine.step(batch)?.repeated;
            let step = start.elapsed().as_secs_f64();
            engine.interpreter.communicators.largest_of_all(vec![0.0])?;
            let start = Instant::now();
            move_states(&mut engine.interpreter)?;
            times.push(StateTimes { step, moves: start.elapsed().as_secs_f64(), repeated });
        }
        Ok(times)
    })?)
}

/// Moves all offloaded states as a step does that repeats nothing, and does nothing else: to the device and back. They stay
/// what they are.
fn move_states<B: Backend>(interpreter: &mut Interpreter<'_, B>) -> Result<(), EngineError> {
    let moves = |operation: &Operation| {
        use Operation::{AwaitFetch, AwaitStore, Fetch, Store};
        matches!(operation, Fetch(_) | AwaitFetch(_) | Store(_) | AwaitStore(_))
    };
    let ops = &interpreter.rank.program.update.ops;
    let mut ops = ops.iter().filter(|op| op.when == When::Always && moves(&op.operation));
    ops.try_for_each(|op| interpreter.execute(&op.operation))
}
