//! Simulated against measured steps.
//!
//! The simulator gets its constants from [`Constants`], which measures other layouts than those that are compared. It
//! knows nothing of cores, which thread ranks share where there are fewer cores than ranks: then a rank computes more
//! slowly by the number of ranks that compute at once over the number of cores. How many do is what the simulation
//! itself says, so that it is repeated until the two agree.

use quadrille_cost::simulation::{Simulation, simulate};
use quadrille_engine::{Hyper, Processor, TrainOptions, TrainOutcome, WAITING};
use quadrille_spec::{Axis, Layout, LayoutRequest, Linear, Model, Schedule};
use quadrille_step::StepProgram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::constants::Constants;
use crate::step::{measured, steps};
use crate::timing::median;
use crate::{MeasureError, OnProgress, Progress, Refusal, Setting};

/// A model file whose step is worth measuring: a step of some hundred milliseconds on two cores.
pub const MODEL: &str = "name = \"gpt-bench\"\nlayers = 4\nhidden = 256\nheads = 8\nvocab = 4096\nseq_len = 256";
/// What the sequences of a step are a multiple of: eight microbatches of one.
const BATCH_UNIT: usize = 8;
/// Rounds in which crowding and simulation come to agree; they do so in two or three.
const ROUNDS: usize = 8;
/// What the simulated machine leaves out, for readers of the error.
pub const NOT_MODELLED: &str = "computing and communicating on the same cores and memory; efficiency by shape of a product \
                            and kind of an element-wise operation; time slices of crowded cores; the system's noise";

/// A grid and what is unusual about it.
struct Case {
    grid: &'static str,
    linear: Linear,
    schedule: Schedule,
    /// In which a pipeline splits the batch; `None`: no pipeline.
    microbatches: Option<usize>,
}

impl Case {
    const fn of(grid: &'static str) -> Self {
        Self { grid, linear: Linear::Pmm, schedule: Schedule::OneForwardOneBackward, microbatches: None }
    }

    const fn pipeline(grid: &'static str, schedule: Schedule, microbatches: usize) -> Self {
        Self { schedule, microbatches: Some(microbatches), ..Self::of(grid) }
    }
}

const CASES: [Case; 10] = [
    Case::of("x=2"),
    Case::of("y=2"),
    Case::of("z=2"),
    Case::of("context=2"),
    Case::pipeline("pipe=2", Schedule::OneForwardOneBackward, 4),
    Case::of("z=2,data=2"),
    Case { linear: Linear::Summa, ..Case::of("x=2,y=2") },
    Case::pipeline("x=2,pipe=2", Schedule::OneForwardOneBackward, 4),
    Case::pipeline("pipe=4", Schedule::ZeroBubble, 8),
    Case::of("x=2,y=2,z=2"),
];

/// Simulated beside measured steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Simulated {
    /// The mean of the two below.
    pub calibration: Constants,
    /// Before and after the layouts: far apart on a machine that is not quiet, where errors say little.
    pub calibration_each: [Constants; 2],
    /// Every layout.
    pub layouts: Vec<Row>,
    /// The mean of the errors' sizes.
    pub mean_absolute_error_percent: f64,
    /// The largest.
    pub largest_absolute_error_percent: f64,
}

/// A layout, simulated and measured.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The axes above 1, and what is unusual: `x=2,y=2 summa`.
    pub layout: String,
    /// Of one thread each.
    pub ranks: usize,
    /// Simulated ranks that compute at once over cores, at least 1: by this all constants are slowed down.
    pub crowding: f64,
    /// Milliseconds of the simulated step.
    pub simulated_ms: f64,
    /// The same measured, the median.
    pub measured_ms: f64,
    /// Every measured step, in order.
    pub measured_ms_each: Vec<f64>,
    /// Of the measured time; above 0 where the simulation is too slow.
    pub error_percent: f64,
    /// Of a rank's step: waiting for collectives, messages and other stages.
    pub simulated_waiting_percent: f64,
    /// The same, measured.
    pub waiting_percent: f64,
}

/// Ten layouts of 2 to 8 ranks, of one thread each.
#[derive(Debug)]
pub struct SimulationBench {
    model: Model,
    global_batch: usize,
    programs: Vec<StepProgram>,
}

impl SimulationBench {
    /// Of a model ([`MODEL`] is one) and so many sequences a step.
    ///
    /// # Errors
    /// Sequences that are no multiple of eight; a model that one of the layouts does not allow.
    pub fn new(model: Model, global_batch: usize) -> Result<Self, MeasureError> {
        if global_batch == 0 || !global_batch.is_multiple_of(BATCH_UNIT) {
            let rule = format!(" {global_batch}: give a multiple of {BATCH_UNIT}");
            return Err(Refusal::of(Setting::GlobalBatch).text(rule).into());
        }
        let programs = CASES.iter().map(|case| program(case, &model, global_batch)).collect::<Result<_, _>>()?;
        Ok(Self { model, global_batch, programs })
    }

    /// What is run.
    pub fn programs(&self) -> &[StepProgram] {
        &self.programs
    }

    /// Measures the constants, so many steps of every layout after one that warms up, and the constants again; then
    /// simulates the layouts on a machine of so many cores. Tells before each part which comes next.
    ///
    /// # Errors
    /// A rank's failure; a step that cannot be simulated.
    pub fn measure(&self, steps_each: u64, cores: usize, told: OnProgress) -> Result<Simulated, MeasureError> {
        let options = TrainOptions::new(steps_each + 1, Hyper::default(), 1);
        let constants = || Constants::measure(&self.model, self.global_batch, &options);
        let of = self.programs.len() + 2;
        told(Progress { done: 0, of, next: Some("constants") });
        let before = constants()?;
        let outcomes = self.programs.iter().zip(1..).map(|(program, done)| {
            told(Progress { done, of, next: Some(&name(&program.layout)) });
            steps(&Processor, program, &options)
        });
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
        told(Progress { done: of - 1, of, next: Some("constants") });
        let after = constants()?;
        let calibration = before.mean(&after);
        let rows = self.programs.iter().zip(&outcomes);
        let rows = rows.map(|(program, outcome)| row(program, &calibration, outcome, cores));
        let layouts = rows.collect::<Result<Vec<_>, _>>()?;
        let errors = || layouts.iter().map(|row| row.error_percent.abs());
        Ok(Simulated {
            calibration,
            calibration_each: [before, after],
            mean_absolute_error_percent: errors().sum::<f64>() / layouts.len() as f64,
            largest_absolute_error_percent: errors().fold(0.0, f64::max),
            layouts,
        })
    }
}

fn program(case: &Case, model: &Model, global_batch: usize) -> Result<StepProgram, MeasureError> {
    let request = LayoutRequest {
        linear: case.linear,
        schedule: case.schedule,
        microbatch: case.microbatches.map(|microbatches| global_batch / microbatches),
        ..LayoutRequest::new(case.grid.parse()?, global_batch)
    };
    Ok(StepProgram::new(model, &Layout::new(model, &request)?)?)
}

fn row(
    program: &StepProgram,
    calibration: &Constants,
    outcome: &TrainOutcome,
    cores: usize,
) -> Result<Row, MeasureError> {
    let (crowding, simulation) = simulated(program, calibration, cores)?;
    let measured_ms_each: Vec<f64> = measured(outcome).map(|seconds| 1e3 * seconds).collect();
    let simulated_ms = 1e3 * simulation.step_seconds;
    let measured_ms = median(measured_ms_each.clone());
    let total: f64 = simulation.stages.iter().map(|stage| stage.total_s()).sum();
    let busy: f64 = simulation.stages.iter().map(|stage| stage.busy_s).sum();
    Ok(Row {
        layout: name(&program.layout),
        ranks: program.layout.grid.ranks(),
        crowding,
        simulated_ms,
        measured_ms,
        error_percent: 100.0 * (simulated_ms / measured_ms - 1.0),
        simulated_waiting_percent: 100.0 * (1.0 - busy / total),
        waiting_percent: 100.0 * waiting_share(outcome),
        measured_ms_each,
    })
}

/// The axes above 1, and what is unusual: `x=2,y=2 summa`, `pipe=4 zb-h1, 8 microbatches`.
fn name(layout: &Layout) -> String {
    let axes = Axis::ALL.into_iter().map(|axis| (axis, layout.grid.size(axis))).filter(|(_, size)| *size > 1);
    let grid = axes.map(|(axis, size)| format!("{axis}={size}")).collect::<Vec<_>>().join(",");
    match (layout.linear, layout.microbatches()) {
        (Linear::Summa, _) => format!("{grid} {}", layout.linear),
        (_, 1) => grid,
        (_, microbatches) => format!("{grid} {}, {microbatches} microbatches", layout.schedule),
    }
}

/// A step in which ranks share cores: with the number of them, on average, that want one.
fn simulated(program: &StepProgram, calibration: &Constants, cores: usize) -> Result<(f64, Simulation), MeasureError> {
    let ranks = (program.layout.grid.ranks() / program.stages.len()) as f64;
    let mut crowding = 1.0;
    for _ in 1..ROUNDS {
        let simulation = once(program, calibration, crowding)?;
        let busy: f64 = simulation.stages.iter().map(|stage| stage.busy_s).sum();
        crowding = (ranks * busy / simulation.step_seconds / cores as f64).max(1.0);
    }
    Ok((crowding, once(program, calibration, crowding)?))
}

fn once(program: &StepProgram, calibration: &Constants, crowding: f64) -> Result<Simulation, MeasureError> {
    Ok(simulate(program, &calibration.machine(crowding))?)
}

/// The share of all ranks' time in operations.
fn waiting_share(outcome: &TrainOutcome) -> f64 {
    let operations = || outcome.ranks.iter().flat_map(|rank| &rank.breakdown);
    let waits: f64 =
        operations().filter(|(name, _)| WAITING.contains(&name.as_str())).map(|(_, seconds)| seconds).sum();
    waits / operations().map(|(_, seconds)| seconds).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALIBRATION: Constants = Constants {
        product_gflops: 50.0,
        attention_gflops: 20.0,
        memory_gb_s: 10.0,
        operation_latency_us: 2.0,
        message_latency_us: 10.0,
        ring_gb_s: 5.0,
    };

    fn of(grid: usize, cores: usize) -> (StepProgram, f64, Simulation) {
        let program = program(&CASES[grid], &Model::from_toml(MODEL, &[]).unwrap(), BATCH_UNIT).unwrap();
        let (crowding, simulation) = simulated(&program, &CALIBRATION, cores).unwrap();
        (program, crowding, simulation)
    }

    #[test]
    fn a_core_for_every_rank_slows_nothing_down() {
        for case in 0..CASES.len() {
            let (program, crowding, simulation) = of(case, 8);
            assert_eq!(crowding, 1.0);
            assert_eq!(simulation, simulate(&program, &CALIBRATION.machine(1.0)).unwrap());
        }
    }

    /// Cores that are wanted all the time do as much as they can, and no more.
    #[test]
    fn crowded_cores_are_busy_from_begin_to_end() {
        for case in 0..CASES.len() {
            let (program, crowding, shared) = of(case, 1);
            let alone = simulate(&program, &CALIBRATION.machine(1.0)).unwrap();
            let ranks = (program.layout.grid.ranks() / program.stages.len()) as f64;
            let work = ranks * alone.stages.iter().map(|stage| stage.busy_s).sum::<f64>();
            assert!(crowding > 1.0);
            assert!((shared.step_seconds / work - 1.0).abs() < 0.01, "{}: {work}", name(&program.layout));
        }
    }
}
