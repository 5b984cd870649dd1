//! What a layout does, and when.

use quadrille_spec::{Cluster, Layout, Model, RankLedger};
use quadrille_step::{StepProgram, predict_rank, print_program};

use crate::native::{Framework, NativeMachine, Price, PriceError, Problem};
use crate::simulation::{
    DeviceRates, Machine, RingNetwork, Simulation, UniformMachine, simulate, simulate_passes, timeline,
};

/// What a layout does in a step, and when.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The step program that the framework runs.
    pub program: StepProgram,
    /// Seconds of a step with their parts, bytes of memory of the fullest device: those of a plan.
    pub price: Price,
    /// When every rank does what.
    pub simulation: Simulation,
}

impl Explanation {
    /// What a rank sends, computes and holds in a step: bytes and FLOPs, exactly; collectives by rings. Of `axes` of it
    /// [`bytes_sent`](Self::bytes_sent) is the sum.
    ///
    /// # Panics
    /// If the layout has no such rank.
    pub fn ledger(&self, rank: usize) -> RankLedger {
        predict_rank(&self.program, rank)
    }

    /// Bytes that a rank sends in a step, in all collectives and messages between stages.
    ///
    /// # Panics
    /// If the layout has no such rank.
    pub fn bytes_sent(&self, rank: usize) -> u64 {
        let axes = self.ledger(rank).axes;
        axes.values().flat_map(|kinds| kinds.values()).map(|transfer| transfer.wire_bytes).sum()
    }

    /// A drawing of the step in so many columns: a line for each stage, and what its letters mean.
    pub fn timeline(&self, columns: usize) -> String {
        timeline(&self.simulation, columns)
    }

    /// The program as text.
    pub fn program_text(&self) -> String {
        print_program(&self.program)
    }
}

/// Explains a layout of a model on a cluster, as a framework runs it.
///
/// # Errors
/// A layout that has no program, or does not lie on the cluster.
pub fn explain(
    model: &Model,
    cluster: &Cluster,
    framework: Framework,
    layout: &Layout,
) -> Result<Explanation, PriceError> {
    let framework = framework.in_types_of(layout);
    let problem = Problem::new(model, cluster, framework, layout.global_batch, layout.seq_len)?;
    let price = problem.price_layout(layout)?;
    let program = framework.program(model, layout)?;
    let simulation = simulate(&program, &NativeMachine::new(&problem, layout))?;
    Ok(Explanation { program, price, simulation })
}

/// Simulates a step of a framework's `program` on a cluster: on devices of these rates, joined by rings, or without rates on
/// those that the cluster describes; with the events inside passes, or in a fraction of the time and memory without.
///
/// # Errors
/// A layout that does not lie on the cluster; a program that cannot be simulated there.
pub fn simulate_step(
    program: &StepProgram,
    cluster: &Cluster,
    framework: Framework,
    rates: Option<DeviceRates>,
    events: bool,
) -> Result<Simulation, PriceError> {
    let StepProgram { model, layout, .. } = program;
    let simulated = |machine: &dyn Machine| {
        if events { simulate(program, machine) } else { simulate_passes(program, machine, &|| false) }
    };
    if let Some(rates) = rates {
        let network = RingNetwork::new(cluster, layout, rates.operation_latency_s)?;
        return Ok(simulated(&UniformMachine { rates, network })?);
    }
    let problem = Problem::new(model, cluster, framework.in_types_of(layout), layout.global_batch, layout.seq_len)?;
    problem.check_placed(layout)?;
    problem.check_states(&program.stages)?;
    Ok(simulated(&NativeMachine::new(&problem, layout))?)
}
