//! What a step takes on a machine: a discrete-event simulation of a step program with its schedule.
//!
//! All ranks of a stage do the same at the same time, so one of them stands for all. It has a compute stream, a
//! communication stream, and a link to every stage that it sends to:
//! - operations run in the order of the program on the compute stream;
//! - collectives run one after the other in the order of their issue, whatever their axes, as the communicator runs them; a
//!   wait stops the compute stream until it is done;
//! - a pass begins when its messages have arrived and sends when it ends; messages of a link travel one after the other;
//!   a release waits until the message has arrived and its receive is posted;
//! - a collective over several stages (the loss, the gradient norm, the two gradients of a tied table) begins when the
//!   last of them has come to it;
//! - a message-driven stage decides when it is free: backward before forward among what has arrived.
//!
//! A pass that begins with a free communication stream takes the same time for every microbatch but the first, so that its
//! operations are followed once only.
//!
//! Two steps are simulated and the second is reported: with ZeRO it waits for the gathers of updated weights that the
//! first one's update has issued, as every step but the first does.
//!
//! Contention between streams of a rank, between computing and communicating, and among messages of different stages
//! beyond what the [`Machine`] prices, is not modelled.

mod error;
mod exchange;
mod machine;
mod network;
mod order;
mod record;
mod repeat;
mod stage;
mod stream;
mod tasks;
mod timeline;

use quadrille_step::StepProgram;

pub use error::SimulationError;
pub use machine::{Communication, DeviceRates, Machine, UniformMachine};
pub use network::RingNetwork;
pub use record::{Event, Lane, PassSpan, Simulation, StageTimes};
pub use timeline::timeline;

use exchange::Exchange;
use stage::{Record, Stage};
use tasks::PricedStage;

/// One to begin with and one to report.
const STEPS: usize = 2;

/// Simulates a step among equal ones.
///
/// # Errors
/// A machine that gives times that are none; a program that waits for what never comes.
pub fn simulate(program: &StepProgram, machine: &dyn Machine) -> Result<Simulation, SimulationError> {
    simulation(program, machine, true)
}

/// The same without the events inside passes, in a fraction of the time.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_passes(program: &StepProgram, machine: &dyn Machine) -> Result<Simulation, SimulationError> {
    simulation(program, machine, false)
}

fn simulation(program: &StepProgram, machine: &dyn Machine, events: bool) -> Result<Simulation, SimulationError> {
    let priced = program.stages.iter().map(|stage| PricedStage::new(stage, machine)).collect::<Result<Vec<_>, _>>()?;
    let stages = program.stages.iter().zip(&priced);
    let mut stages: Vec<Stage> = stages.map(|(program, priced)| Stage::new(program, priced, machine, events)).collect();
    run(&mut stages, Exchange::new(program.layout.overlap_chunks))?;
    Ok(report(stages.into_iter().map(|stage| stage.records).collect()))
}

/// Runs the stages through all steps. Those that follow lists go as far as they can, in turn: when things happen does not
/// depend on who is asked first.
fn run(stages: &mut [Stage], mut exchange: Exchange) -> Result<(), SimulationError> {
    if stages.iter().any(Stage::is_message_driven) {
        return run_messages(stages, exchange);
    }
    loop {
        let mut goes_on = false;
        for stage in &mut *stages {
            while stage.records.len() < STEPS
                && let Some((at, next)) = stage.next(&exchange)
            {
                stage.perform(at, next, &mut exchange)?;
                goes_on = true;
            }
        }
        match stages.iter().position(|stage| stage.records.len() < STEPS) {
            None => return Ok(()),
            Some(stage) if !goes_on => return Err(SimulationError::Stuck { stage }),
            Some(_) => {}
        }
    }
}

/// Always the one that can go on first: so a stage that decides by what has arrived knows of everything that could have
/// arrived.
fn run_messages(stages: &mut [Stage], mut exchange: Exchange) -> Result<(), SimulationError> {
    loop {
        let unfinished = || stages.iter().enumerate().filter(|(_, stage)| stage.records.len() < STEPS);
        let ready = unfinished().filter_map(|(index, stage)| Some((index, stage.next(&exchange)?)));
        match (ready.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b)), unfinished().next()) {
            (Some((index, (at, next))), _) => stages[index].perform(at, next, &mut exchange)?,
            (None, Some((stage, _))) => return Err(SimulationError::Stuck { stage }),
            (None, None) => return Ok(()),
        }
    }
}

/// The last step, on a clock that begins when its first stage begins.
fn report(records: Vec<Vec<Record>>) -> Simulation {
    let end = |record: &Record| record.passes.last().map_or(0.0, |span| span.end_s);
    let ends = |step: usize| records.iter().filter_map(move |records| records.get(step)).map(end);
    let latest = |step| ends(step).fold(0.0, f64::max);
    let step_seconds = latest(STEPS - 1) - latest(STEPS - 2);
    let origin = ends(STEPS - 2).reduce(f64::min).unwrap_or(0.0);
    let mut simulation = Simulation { step_seconds, stages: Vec::new(), passes: Vec::new(), events: Vec::new() };
    for record in records.into_iter().filter_map(|mut records| records.pop()) {
        simulation.stages.push(record.times);
        simulation.passes.extend(record.passes);
        simulation.events.extend(record.events);
    }
    for span in &mut simulation.passes {
        (span.start_s, span.end_s) = (span.start_s - origin, span.end_s - origin);
    }
    for event in &mut simulation.events {
        (event.start_s, event.end_s) = (event.start_s - origin, event.end_s - origin);
    }
    let place = |event: &Event| (event.stage, event.lane);
    simulation.events.sort_by(|a, b| place(a).cmp(&place(b)).then(a.start_s.total_cmp(&b.start_s)));
    simulation
}
