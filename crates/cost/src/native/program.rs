//! The price of a step from its program: the seconds of its discrete events, the bytes of its fullest rank.

use quadrille_spec::{Axis, AxisSet, Blame, EvenPieces, Imbalance, Layout, SpecError};
use quadrille_step::{FoldedProgram, Op, StageProgram, StepError};

use super::machine::NativeMachine;
use super::rates::Taken;
use super::{Memory, Parts, Price, Problem};
use crate::simulation::{
    Communication, Machine, Simulation, SimulationError, StageTimes, simulate_passes, simulate_times,
};

/// A layout that has no price.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PriceError {
    /// The layout is not legal, or the cluster is not described.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// It has no program.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Its program cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

impl PriceError {
    /// What is at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Spec(_) | Self::Step(_) => Blame::Input,
            Self::Simulation(_) => Blame::Work,
        }
    }

    /// Whether it has no price since nobody waited for it.
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Simulation(SimulationError::Stopped))
    }
}

impl Problem {
    /// The price of a layout: of the program that the framework runs of it, the step that
    /// [`simulate`](crate::simulation::simulate) gives, and the memory of the rank that has most.
    ///
    /// # Errors
    /// More devices than the cluster joins, groups of ranks that straddle nodes; a layout that has no program, or no room for
    /// the rows of the fullest rank's experts.
    pub fn price_layout(&self, layout: &Layout) -> Result<Price, PriceError> {
        self.check_placed(layout)?;
        self.price_program(&mut self.folded(layout)?)
    }

    /// Seconds and memory of a step of a layout, as in its price; `None` where `fits` says of the memory that the seconds do
    /// not matter.
    ///
    /// # Errors
    /// As [`Problem::price_layout`]; [`SimulationError::Stopped`] as soon as `stop` says so.
    pub fn outline(
        &self,
        layout: &Layout,
        fits: impl Fn(&Memory) -> bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<(f64, Memory)>, PriceError> {
        let Some((program, memory)) = self.fitting_program(layout, fits)? else { return Ok(None) };
        Ok(Some((self.seconds_of_program(&program, stop)?, memory)))
    }

    /// The price of a step of a layout; `None` where `fits` says of its memory that the price does not matter.
    ///
    /// # Errors
    /// As [`Problem::outline`].
    pub fn price_fitting(
        &self,
        layout: &Layout,
        fits: impl Fn(&Memory) -> bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Price>, PriceError> {
        let Some((program, memory)) = self.fitting_program(layout, fits)? else { return Ok(None) };
        self.check_states(&program.kinds)?;
        Ok(Some(self.price_of(&program, memory, stop)?))
    }

    /// The program of a layout, with its memory, if `fits` says of that memory that it does.
    fn fitting_program(
        &self,
        layout: &Layout,
        fits: impl Fn(&Memory) -> bool,
    ) -> Result<Option<(FoldedProgram, Memory)>, PriceError> {
        self.check_placed(layout)?;
        let mut program = self.folded(layout)?;
        let memory = self.memory_of_program(&mut program);
        let is_overfull = program.kinds.iter().any(StageProgram::is_overfull);
        let is_kept = fits(&memory) && !is_overfull && self.has_host_room(&program.kinds);
        Ok(is_kept.then_some((program, memory)))
    }

    /// Seconds of a step of a program, as in its price, until `stop` says that nobody waits for it any more.
    ///
    /// # Errors
    /// A program that cannot be simulated; [`SimulationError::Stopped`].
    pub fn seconds_of_program(&self, program: &FoldedProgram, stop: &dyn Fn() -> bool) -> Result<f64, PriceError> {
        self.check_states(&program.kinds)?;
        let simulation = simulate_times(program, &NativeMachine::new(self, &program.layout), stop)?;
        Ok(simulation.step_seconds + self.framework.data_seconds)
    }

    /// The passes of a step of a layout, as its price has them, until `stop` says that nobody waits for them any more.
    ///
    /// # Errors
    /// As [`Problem::price_layout`]; [`SimulationError::Stopped`].
    pub fn passes(&self, layout: &Layout, stop: &dyn Fn() -> bool) -> Result<Simulation, PriceError> {
        self.check_placed(layout)?;
        let program = self.folded(layout)?;
        Ok(simulate_passes(&program, &NativeMachine::new(self, &program.layout), stop)?)
    }

    /// The price of a step of a program.
    ///
    /// # Errors
    /// A program that cannot be simulated.
    pub fn price_program(&self, program: &mut FoldedProgram) -> Result<Price, PriceError> {
        self.check_states(&program.kinds)?;
        check_rows(&program.kinds)?;
        let memory = self.memory_of_program(program);
        self.price_of(program, memory, &|| false)
    }

    /// The price of a step of a program with this memory.
    fn price_of(&self, program: &FoldedProgram, memory: Memory, stop: &dyn Fn() -> bool) -> Result<Price, PriceError> {
        let machine = NativeMachine::new(self, &program.layout);
        let simulation = simulate_times(program, &machine, stop)?;
        let kinds: Vec<StageWork> = program.kinds.iter().map(|kind| StageWork::of(kind, &machine)).collect();
        let works: Vec<&StageWork> = program.stages.iter().map(|stage| &kinds[stage.kind]).collect();
        let ranks = (program.layout.grid.ranks() / program.stages.len()) as f64;
        Ok(Price {
            seconds: simulation.step_seconds + self.framework.data_seconds,
            parts: Parts {
                data_loading: self.framework.data_seconds,
                ..parts(program, &machine, &simulation, &works, stop)?
            },
            memory,
            model_flops: self.model_flops,
            executed_flops: ranks * works.iter().map(|work| work.flops).sum::<f64>(),
        })
    }

    /// Whether the device's share of its host's memory, where it is known, holds the states that lie there.
    pub fn has_host_room(&self, stages: &[StageProgram]) -> bool {
        stages.iter().map(StageProgram::host_bytes).all(|bytes| self.host_holds(bytes))
    }

    /// Of states in the host's memory, that they can be there.
    ///
    /// # Errors
    /// A device without `host_bandwidth`; more bytes than its share.
    pub fn check_states(&self, stages: &[StageProgram]) -> Result<(), SpecError> {
        let offloaded = stages.iter().filter(|stage| stage.offloads()).map(StageProgram::host_bytes).max();
        offloaded.map_or(Ok(()), |bytes| self.check_host(bytes))
    }

    /// Makes sure that the cluster's networks join the layout's ranks, and every group of them has as many members in each
    /// domain of the innermost tier.
    ///
    /// # Errors
    /// More devices than the cluster joins; groups of ranks that straddle nodes.
    pub fn check_placed(&self, layout: &Layout) -> Result<(), SpecError> {
        self.check_devices(layout.grid.ranks())?;
        let candidate = self.candidate(layout);
        let used = self.domains.used(layout).min(layout.grid.ranks());
        if candidate.domain() == used {
            return Ok(());
        }
        let rule = "groups of ranks straddle nodes, which the native model does not price";
        let node = self.domains.fullest_node(layout);
        let remedy = format!("use `layout.per_node` {node} or another `layout.order`");
        Err(SpecError::invalid("per-node", used, rule, remedy))
    }

    /// Whether the layout's pieces are as equal as possible, its groups of microbatches as long as the pipeline, and its update
    /// waits for the norm, as those of a [`Candidate`](super::Candidate) do.
    pub fn is_candidate(&self, layout: &Layout) -> bool {
        !layout.optimizer_overlap
            && EvenPieces::are(&layout.stage_blocks)
            && layout.microbatch_group == layout.grid.size(Axis::Pipe)
    }
}

/// What the compute stream of a stage's rank does in a step.
#[derive(Default)]
struct StageWork {
    passes: Taken,
    update: Taken,
    /// Of products and attention, of the mean of all ranks.
    flops: f64,
}

impl StageWork {
    fn of(stage: &StageProgram, machine: &NativeMachine) -> Self {
        let mut work = Self::default();
        let microbatches = stage.layout.microbatches();
        let mean = stage.balanced();
        for section in stage.chunks.iter().flat_map(|chunk| chunk.sections()) {
            for op in computing(&section.ops) {
                let times = op.times(microbatches) as f64;
                work.passes += machine.cost(stage, &op.operation).0.times(times);
                work.flops += times * machine.flops(&mean, &op.operation);
            }
        }
        for op in computing(&stage.update.ops) {
            work.update += machine.cost(stage, &op.operation).0;
        }
        work
    }
}

/// Makes sure that there is room for the rows that experts get.
fn check_rows(stages: &[StageProgram]) -> Result<(), SpecError> {
    let Some(stage) = stages.iter().find(|stage| stage.is_overfull()) else { return Ok(()) };
    let imbalance = stage.practice.imbalance;
    let ranks = stage.grid().size_of(stage.layout.experts_over);
    let rule = "the fullest rank has so many times the rows of experts that equal loads bring, and no room for them";
    let needed = Imbalance::Times(imbalance).times_in(&stage.model, ranks).ceil();
    let remedy = format!("use `layout.expert_rows` {needed}");
    Err(SpecError::invalid("`search.imbalance`", imbalance, rule, remedy))
}

fn computing(ops: &[Op]) -> impl Iterator<Item = &Op> {
    // A step of which nothing is repeated or taken back.
    ops.iter().filter(|op| op.times(1) > 0 && op.operation.group().computes())
}

/// The seconds of the busiest stage by cause; what is left of the step is its bubble. What messages add to the step is
/// communication along pipe.
fn parts(
    program: &FoldedProgram,
    machine: &NativeMachine,
    simulation: &Simulation,
    works: &[&StageWork],
    stop: &dyn Fn() -> bool,
) -> Result<Parts, SimulationError> {
    let waiting = |times: &StageTimes| times.waiting_on_collectives_s.values().sum::<f64>() + times.waiting_on_host_s;
    let busy = |times: &StageTimes| times.busy_s + waiting(times);
    let stages = works.iter().zip(&simulation.stages);
    let Some((work, times)) = stages.max_by(|(_, a), (_, b)| busy(a).total_cmp(&busy(b))) else {
        return Ok(Parts::default());
    };
    let mut communication = [0.0; Axis::COUNT];
    for (axes, seconds) in &times.waiting_on_collectives_s {
        communication[outermost(&program.layout, *axes) as usize] += seconds;
    }
    let idle = (simulation.step_seconds - busy(times)).max(0.0);
    let messages = match program.stages.len() {
        1 => 0.0,
        _ => simulation.step_seconds - simulate_times(program, &WithoutMessages(machine), stop)?.step_seconds,
    };
    let messages = messages.clamp(0.0, idle);
    communication[Axis::Pipe as usize] += messages;
    Ok(Parts {
        compute: work.passes.compute,
        memory_bound: work.passes.memory,
        // The host is late.
        launch: work.passes.launch + (times.busy_s - work.passes.seconds() - work.update.seconds()).max(0.0),
        communication,
        bubble: idle - messages,
        optimizer: work.update.seconds() + times.waiting_on_host_s,
        data_loading: 0.0,
    })
}

/// The outermost of a set of axes that is above 1.
fn outermost(layout: &Layout, axes: AxisSet) -> Axis {
    let several = |axis: &Axis| layout.grid.size(*axis) > 1;
    axes.iter().rev().find(several).unwrap_or(Axis::Data)
}

/// The same machine, on which messages between stages take no time.
struct WithoutMessages<'a>(&'a NativeMachine<'a>);

impl Machine for WithoutMessages<'_> {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        self.0.operation_seconds(stage, op)
    }

    fn collective_seconds(&self, collective: &Communication) -> f64 {
        self.0.collective_seconds(collective)
    }

    fn message_seconds(&self, _bytes: u64) -> f64 {
        0.0
    }

    fn host_copy_seconds(&self, bytes: u64) -> f64 {
        self.0.host_copy_seconds(bytes)
    }

    fn operation(&self, stage: &StageProgram, op: &Op) -> (f64, f64) {
        self.0.operation(stage, op)
    }

    fn host_seconds(&self) -> f64 {
        self.0.host_seconds()
    }

    fn streams_by_group(&self) -> bool {
        self.0.streams_by_group()
    }

    fn share_beside_collectives(&self) -> f64 {
        self.0.share_beside_collectives()
    }
}
