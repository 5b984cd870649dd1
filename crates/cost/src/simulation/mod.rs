//! What a step takes on a machine: a discrete-event simulation of a step program with its schedule.
//!
//! All ranks of a stage do the same at the same time, so one of them stands for all. It has a compute stream, a
//! communication stream, and a link to every stage that it sends to:
//! - operations run in the order of the program on the compute stream;
//! - collectives run one after the other in the order of their issue, whatever their axes, as the communicator runs them; a
//!   wait stops the compute stream until it is done, and counts for the collectives that run meanwhile;
//! - a pass begins when its messages have arrived and sends when it ends; messages of a link travel one after the other;
//!   a release waits until the message has arrived and its receive is posted;
//! - a collective over several stages (the loss, the gradient norm, the two gradients of a tied table) begins when the
//!   last of them has come to it;
//! - copies to and from the memory of a device's host run one after the other beside all this; a wait stops the compute
//!   stream until its copy is done;
//! - a message-driven stage decides when it is free: backward before forward among what has arrived.
//!
//! A pass that begins and ends with free communication streams takes the same time for every microbatch of which no more is
//! asked than of others, and on every stage of a kind: its operations are followed once only.
//!
//! Two steps are simulated and the second is reported: with ZeRO it waits for the gathers of updated weights that the
//! first one's update has issued, as every step but the first does.
//!
//! Computing may be slower beside a collective ([`Machine::share_beside_collectives`]). Contention between communication streams of a
//! rank, and among messages of different stages beyond what the [`Machine`] prices, is not modelled.

mod error;
mod exchange;
mod machine;
mod network;
mod order;
mod rates;
mod record;
mod repeat;
mod stage;
mod stages;
mod stream;
mod tasks;
mod timeline;

pub use error::SimulationError;
pub use machine::{Communication, DeviceRates, Machine, UniformMachine};
pub use network::RingNetwork;
pub use rates::{LOCAL_GFLOPS, LOCAL_LATENCY_US, LOCAL_MEMORY_GB_S, RateError, SaidRates};
pub use record::{Event, Lane, PassSpan, Simulation, StageTimes};
pub use stages::Stages;
pub use timeline::timeline;

use exchange::Exchange;
use order::Next;
use repeat::Repeats;
use stage::{Record, Stage};
use tasks::PricedStage;

/// One to begin with and one to report.
const STEPS: usize = 2;

/// Things that stages do between two questions whether to stop: less than a millisecond of them.
const STRIDE: usize = 1 << 12;

/// Simulates a step among equal ones.
///
/// # Errors
/// A machine that gives times that are none; a program that waits for what never comes.
pub fn simulate<'a>(program: impl Into<Stages<'a>>, machine: &dyn Machine) -> Result<Simulation, SimulationError> {
    simulation(&program.into(), machine, Detail::Events, &|| false)
}

/// The same without the events inside passes, in a fraction of the time, until `stop` says that nobody waits for it any more.
///
/// # Errors
/// As [`simulate`]; [`SimulationError::Stopped`].
pub fn simulate_passes<'a>(
    program: impl Into<Stages<'a>>,
    machine: &dyn Machine,
    stop: &dyn Fn() -> bool,
) -> Result<Simulation, SimulationError> {
    simulation(&program.into(), machine, Detail::Passes, stop)
}

/// The same without the passes: how long the step takes, and what on.
///
/// # Errors
/// As [`simulate_passes`].
pub fn simulate_times<'a>(
    program: impl Into<Stages<'a>>,
    machine: &dyn Machine,
    stop: &dyn Fn() -> bool,
) -> Result<Simulation, SimulationError> {
    simulation(&program.into(), machine, Detail::Times, stop)
}

/// What is recorded of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    Times,
    /// Passes too.
    Passes,
    /// The events in them too.
    Events,
}

fn simulation(
    program: &Stages,
    machine: &dyn Machine,
    detail: Detail,
    stop: &dyn Fn() -> bool,
) -> Result<Simulation, SimulationError> {
    let kinds = program.kinds.iter();
    let priced = kinds.map(|kind| PricedStage::new(kind, machine)).collect::<Result<Vec<_>, _>>()?;
    let stage = |place: &_| Stage::new(*place, &priced[place.kind], machine, detail);
    let layout = program.kinds.first().map(|kind| &kind.layout);
    let [microbatches, positions] = layout.map_or([0; 2], |layout| [layout.microbatches(), layout.overlap_chunks]);
    let stages: Vec<Stage> = program.places.iter().map(stage).collect();
    let exchange = Exchange::new(stages.len(), STEPS * microbatches, positions);
    let repeats = program.kinds.iter().map(|_| Repeats::default()).collect();
    Ok(report(Run { stages, exchange, repeats, stop, performed: 0 }.through()?))
}

/// Stages on their way through all steps.
struct Run<'a> {
    stages: Vec<Stage<'a>>,
    exchange: Exchange,
    /// By kind of stages.
    repeats: Vec<Repeats>,
    stop: &'a dyn Fn() -> bool,
    /// What stages have done, by which it is known when to ask `stop`.
    performed: usize,
}

impl<'a> Run<'a> {
    fn through(mut self) -> Result<Vec<Stage<'a>>, SimulationError> {
        if self.stages.iter().any(Stage::is_message_driven) {
            self.by_messages()?
        } else {
            self.by_lists()?
        }
        Ok(self.stages)
    }

    fn perform(&mut self, stage: usize, at: f64, next: Next) -> Result<(), SimulationError> {
        self.performed += 1;
        if self.performed.is_multiple_of(STRIDE) && (self.stop)() {
            return Err(SimulationError::Stopped);
        }
        let stage = &mut self.stages[stage];
        stage.perform(at, next, &mut self.exchange, &mut self.repeats[stage.kind])
    }

    /// Stages that follow lists go as far as they can, in turn, with activations and then with gradients: when things happen
    /// does not depend on who is asked first.
    fn by_lists(&mut self) -> Result<(), SimulationError> {
        let stages = self.stages.len();
        loop {
            let mut goes_on = false;
            for stage in (0..stages).chain((0..stages).rev()) {
                while self.stages[stage].ends.len() < STEPS
                    && let Some((at, next)) = self.stages[stage].next(&self.exchange)
                {
                    self.perform(stage, at, next)?;
                    goes_on = true;
                }
            }
            match self.stages.iter().position(|stage| stage.ends.len() < STEPS) {
                None => return Ok(()),
                Some(stage) if !goes_on => return Err(SimulationError::Stuck { stage }),
                Some(_) => {}
            }
        }
    }

    /// Always the one that can go on first: so a stage that decides by what has arrived knows of everything that could have
    /// arrived.
    fn by_messages(&mut self) -> Result<(), SimulationError> {
        loop {
            let unfinished = || self.stages.iter().enumerate().filter(|(_, stage)| stage.ends.len() < STEPS);
            let ready = unfinished().filter_map(|(index, stage)| Some((index, stage.next(&self.exchange)?)));
            match (ready.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b)), unfinished().next()) {
                (Some((index, (at, next))), _) => self.perform(index, at, next)?,
                (None, Some((stage, _))) => return Err(SimulationError::Stuck { stage }),
                (None, None) => return Ok(()),
            }
        }
    }
}

/// The last step, on a clock that begins when its first stage begins.
fn report(stages: Vec<Stage>) -> Simulation {
    let ends = |step: usize| stages.iter().filter_map(move |stage| stage.ends.get(step)).copied();
    let latest = |step| ends(step).fold(0.0, f64::max);
    let step_seconds = latest(STEPS - 1) - latest(STEPS - 2);
    let origin = ends(STEPS - 2).reduce(f64::min).unwrap_or(0.0);
    let mut simulation = Simulation { step_seconds, stages: Vec::new(), passes: Vec::new(), events: Vec::new() };
    for Record { times, passes, events } in stages.into_iter().map(|stage| stage.record) {
        simulation.stages.push(times.into());
        simulation.passes.extend(passes);
        simulation.events.extend(events);
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
