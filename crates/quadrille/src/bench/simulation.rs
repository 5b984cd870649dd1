//! `quadrille bench simulation`: simulated against measured steps.
//!
//! The simulator gets its constants from [`Calibration`], which measures other layouts than those that are compared. It
//! knows nothing of cores, which thread ranks share where there are fewer cores than ranks: then a rank computes more
//! slowly by the number of ranks that compute at once over the number of cores. How many do is what the simulation
//! itself says, so that it is repeated until the two agree.

use quadrille_cost::simulation::{Simulation, simulate};
use quadrille_engine::{Hyper, TrainOptions, TrainOutcome, WAITING};
use quadrille_measure::constants::Constants as Calibration;
use quadrille_spec::{Axis, Layout, LayoutRequest, Linear, Model, Schedule};
use quadrille_step::StepProgram;
use serde::Serialize;

use crate::bench::arguments::BenchSimulationArguments;
use crate::bench::median;
use crate::bench::step::{measured, steps};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text, table};
use crate::{resources, settings};

/// The model that is measured unless sizes are replaced: a step of some hundred milliseconds on two cores.
const MODEL: &str = "name = \"gpt-bench\"\nlayers = 4\nhidden = 256\nheads = 8\nvocab = 4096\nseq_len = 256";
/// What the sequences of a step are a multiple of: eight microbatches of one.
const BATCH_UNIT: usize = 8;
/// Rounds in which crowding and simulation come to agree; they do so in two or three.
const ROUNDS: usize = 8;
/// What the simulated machine leaves out, for readers of the error.
const NOT_MODELLED: &str = "computing and communicating on the same cores and memory; efficiency by shape of a product \
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

#[derive(Serialize)]
struct Document {
    model: Model,
    global_batch: usize,
    cores: usize,
    /// Measured ones of each layout.
    steps: u64,
    /// The mean of the two below.
    calibration: Calibration,
    /// Before and after the layouts: far apart on a machine that is not quiet, where errors say little.
    calibration_each: [Calibration; 2],
    layouts: Vec<Row>,
    mean_absolute_error_percent: f64,
    largest_absolute_error_percent: f64,
    not_modelled: &'static str,
}

#[derive(Serialize)]
struct Row {
    layout: String,
    ranks: usize,
    /// Simulated ranks that compute at once over cores, at least 1: by this all constants are slowed down.
    crowding: f64,
    simulated_ms: f64,
    /// The median.
    measured_ms: f64,
    /// Every measured step, in order.
    measured_ms_each: Vec<f64>,
    /// Of the measured time; above 0 where the simulation is too slow.
    error_percent: f64,
    /// Of a rank's step: waiting for collectives, messages and other stages.
    simulated_waiting_percent: f64,
    /// The same, measured.
    waiting_percent: f64,
}

/// Measures and reports.
pub fn run(arguments: &BenchSimulationArguments) -> Result<(), Failure> {
    let model = Model::from_toml(MODEL, &overrides(&arguments.set)?)?;
    let global_batch = arguments.global_batch;
    if global_batch == 0 || !global_batch.is_multiple_of(BATCH_UNIT) {
        return Err(Failure::usage(format!("--global-batch {global_batch}: give a multiple of {BATCH_UNIT}")));
    }
    let programs = CASES.iter().map(|case| program(case, &model, global_batch)).collect::<Result<Vec<_>, _>>()?;
    programs.iter().try_for_each(|program| resources::check(program, 1, &Launch::THREADS, 0))?;
    let options = TrainOptions::new(arguments.steps + 1, Hyper::default(), 1);
    let cores = settings::cores();
    let before = Calibration::measure(&model, global_batch, &options)?;
    let outcomes = programs.iter().map(|program| steps::<f32>(program, &options)).collect::<Result<Vec<_>, _>>()?;
    let calibration_each = [before, Calibration::measure(&model, global_batch, &options)?];
    let [before, after] = calibration_each;
    let calibration = before.mean(&after);
    let rows = programs.iter().zip(&outcomes).map(|(program, outcome)| row(program, &calibration, outcome, cores));
    let layouts = rows.collect::<Result<Vec<_>, _>>()?;
    let errors = || layouts.iter().map(|row| row.error_percent.abs());
    let document = Document {
        model,
        global_batch,
        cores,
        steps: arguments.steps,
        calibration,
        calibration_each,
        mean_absolute_error_percent: errors().sum::<f64>() / layouts.len() as f64,
        largest_absolute_error_percent: errors().fold(0.0, f64::max),
        layouts,
        not_modelled: NOT_MODELLED,
    };
    if arguments.json { print_json(&document) } else { print_text(&text(&document)) }
}

/// Assignments of `--set`.
fn overrides(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let split = |assignment: &String| match assignment.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Failure::usage(format!("--set {assignment}: write it as key=value"))),
    };
    set.iter().map(split).collect()
}

fn program(case: &Case, model: &Model, global_batch: usize) -> Result<StepProgram, Failure> {
    let request = LayoutRequest {
        linear: case.linear,
        schedule: case.schedule,
        microbatch: case.microbatches.map(|microbatches| global_batch / microbatches),
        ..LayoutRequest::new(case.grid.parse()?, global_batch)
    };
    Ok(StepProgram::new(model, &Layout::new(model, &request)?)?)
}

fn row(program: &StepProgram, calibration: &Calibration, outcome: &TrainOutcome, cores: usize) -> Result<Row, Failure> {
    let (crowding, simulation) = simulated(program, calibration, cores)?;
    let measured_ms_each: Vec<f64> = measured(outcome).map(|seconds| 1e3 * seconds).collect();
    let (simulated_ms, measured_ms) = (1e3 * simulation.step_seconds, median(measured_ms_each.clone()));
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
fn simulated(program: &StepProgram, calibration: &Calibration, cores: usize) -> Result<(f64, Simulation), Failure> {
    let ranks = (program.layout.grid.ranks() / program.stages.len()) as f64;
    let mut crowding = 1.0;
    for _ in 1..ROUNDS {
        let simulation = once(program, calibration, crowding)?;
        let busy: f64 = simulation.stages.iter().map(|stage| stage.busy_s).sum();
        crowding = (ranks * busy / simulation.step_seconds / cores as f64).max(1.0);
    }
    Ok((crowding, once(program, calibration, crowding)?))
}

fn once(program: &StepProgram, calibration: &Calibration, crowding: f64) -> Result<Simulation, Failure> {
    simulate(program, &calibration.machine(crowding)).map_err(|error| Failure::Run(error.into()))
}

/// The share of all ranks' time in operations.
fn waiting_share(outcome: &TrainOutcome) -> f64 {
    let operations = || outcome.ranks.iter().flat_map(|rank| &rank.breakdown);
    let waits: f64 =
        operations().filter(|(name, _)| WAITING.contains(&name.as_str())).map(|(_, seconds)| seconds).sum();
    waits / operations().map(|(_, seconds)| seconds).sum::<f64>()
}

/// The measured constants; the simulation has the mean of both rows.
fn constants(document: &Document) -> String {
    let row = |calibration: &Calibration| {
        let rates = [calibration.product_gflops, calibration.attention_gflops, calibration.memory_gb_s];
        let ring = [calibration.operation_latency_us, calibration.ring_gb_s, calibration.message_latency_us];
        rates.into_iter().chain(ring).map(|number| format!("{number:.1}")).collect::<Vec<_>>()
    };
    let times = ["before", "after"].into_iter().zip(&document.calibration_each);
    let rows: Vec<Vec<String>> = times.map(|(when, each)| [vec![when.to_owned()], row(each)].concat()).collect();
    let header =
        ["measured", "products GFLOP/s", "attention GFLOP/s", "memory GB/s", "operation us", "ring GB/s", "message us"];
    table(&header, &rows)
}

fn text(document: &Document) -> String {
    let Document { model, layouts, .. } = document;
    let head = format!(
        "{}: {} layers, hidden {}, {} tokens a sequence, {} sequences a step; {} cores, one thread per rank; median of {} \
         step(s)\n{}\n",
        model.name,
        model.layers(),
        model.hidden,
        model.seq_len,
        document.global_batch,
        document.cores,
        document.steps,
        constants(document)
    );
    let rows: Vec<Vec<String>> = layouts
        .iter()
        .map(|row| {
            let numbers = [row.simulated_ms, row.measured_ms].map(|ms| format!("{ms:.1}"));
            let shares = [row.simulated_waiting_percent, row.waiting_percent].map(|share| format!("{share:.1}"));
            let [simulated_ms, measured_ms] = numbers;
            let [simulated_share, share] = shares;
            let error = format!("{:+.1}", row.error_percent);
            let crowding = format!("{:.2}", row.crowding);
            vec![row.layout.clone(), crowding, simulated_ms, measured_ms, error, simulated_share, share]
        })
        .collect();
    let header =
        ["layout", "crowding", "simulated ms", "measured ms", "error %", "simulated waiting %", "measured waiting %"];
    head + &table(&header, &rows)
        + &format!(
            "\nabsolute error: {:.1}% on average, {:.1}% at most\ncrowding: simulated ranks that compute at once over cores, \
             by which every rate is divided\nnot modelled: {}\n",
            document.mean_absolute_error_percent, document.largest_absolute_error_percent, document.not_modelled
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALIBRATION: Calibration = Calibration {
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
