//! `quadrille bench`: speeds beside yardsticks, measured in the same run wherever they can be. The measuring is the crate
//! `measure`'s, the telling `report`'s.

pub mod arguments;
pub mod collectives;
mod optimizer;

use std::path::Path;

use quadrille_engine::{Hyper, LossScale, TrainOptions};
use quadrille_measure::pipeline::PipelineBench;
use quadrille_measure::simulation::{MODEL as SIMULATED_MODEL, SimulationBench};
use quadrille_measure::{gemm, searches, step};
use quadrille_report::ReportVersion;
use quadrille_report::bench::{self as told, GemmReport, PipelineReport, SimulationReport, StepReport};
use quadrille_run::{LayoutDefaults, StatesSpec, assignments, cores, resources};
use quadrille_spec::{ElementType, Layout, Model};
use quadrille_step::StepProgram;

use self::arguments::{
    Bench, BenchArguments, BenchGemmArguments, BenchPipelineArguments, BenchPlanArguments, BenchSimulationArguments,
    BenchStepArguments,
};
use crate::bars;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;
use crate::output::{print_json, print_text};

/// The model that is measured unless another is asked for.
const MODEL: &str = "gpt2-124m";

/// Measures and reports.
pub fn run(arguments: &BenchArguments, launch: &Launch) -> Result<(), Failure> {
    match &arguments.bench {
        Bench::Step(arguments) => whole_step(arguments, launch),
        Bench::Gemm(arguments) => products(arguments),
        Bench::Optimizer(arguments) => optimizer::run(arguments),
        Bench::Collectives(arguments) => collectives::run(arguments, launch),
        Bench::Pipeline(arguments) => schedules(arguments),
        Bench::Simulation(arguments) => simulation(arguments),
        Bench::Plan(arguments) => plan(arguments),
    }
}

/// A whole optimizer step beside the rate of the matrix library.
fn whole_step(arguments: &BenchStepArguments, launch: &Launch) -> Result<(), Failure> {
    let settings = arguments.model.settings(MODEL, Hyper::default())?;
    let layout = layout(&arguments.layout, &settings.model, arguments.dtype, launch)?;
    let cluster = arguments.layout.said(None).described_cluster()?;
    let states = arguments.layout.states();
    let steps = arguments.steps.saturating_add(1);
    let options = TrainOptions {
        states: states.folder().map(Path::to_owned),
        threads: launch.threads(arguments.run.threads, layout.grid.ranks())?,
        timeout: arguments.run.timeout()?,
        collectives: launch.collectives(arguments.run.collectives(), &cluster.tiers),
        loss_scale: LossScale::usual(layout.dtype),
        ..TrainOptions::new(steps, arguments.run.hyper(settings.optimizer, steps)?, arguments.run.seed())
    };
    let program = StepProgram::new(&settings.model, &layout)?;
    resources::check(&program, options.threads, launch, &states, 0)?;
    let measure = || step::measure(launch.device, &program, &options, !arguments.no_scaling);
    let measured = bars::waiting("measuring", measure)?;
    let report = StepReport { program: &program, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// The products of a step beside the matrix library's own threads.
fn products(arguments: &BenchGemmArguments) -> Result<(), Failure> {
    let model = arguments.model.described(MODEL)?;
    let layout = layout(&arguments.layout, &model, Some(ElementType::F32), &Launch::THREADS)?;
    let program = StepProgram::new(&model, &layout)?;
    let threads = arguments.threads.map_or_else(cores, usize::from);
    let measured = bars::measuring(|told| gemm::measure(&program, threads, &mut |progress| told(progress)));
    let report = GemmReport { program: &program, threads, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// Schedules against each other, where passes have given lengths.
fn schedules(arguments: &BenchPipelineArguments) -> Result<(), Failure> {
    let stages = usize::from(arguments.stages);
    let microbatches = usize::from(arguments.microbatches);
    let bench = PipelineBench::new(stages, microbatches, arguments.pass_ms)?;
    let states = StatesSpec::Memory;
    bench.programs().iter().try_for_each(|program| resources::check(program, 1, &Launch::THREADS, &states, 0))?;
    let runs = bars::measuring(|told| bench.measure(arguments.steps, &mut |progress| told(progress)))?;
    let report = PipelineReport {
        version: ReportVersion::CURRENT,
        stages,
        microbatches,
        pass_ms: arguments.pass_ms,
        steps: arguments.steps,
        runs,
    };
    if arguments.json { print_json(&report) } else { print_text(report.text()) }
}

/// Simulated against measured steps.
fn simulation(arguments: &BenchSimulationArguments) -> Result<(), Failure> {
    let BenchSimulationArguments { set, global_batch, steps, .. } = arguments;
    let model = Model::from_toml(SIMULATED_MODEL, &assignments(set)?)?;
    let bench = SimulationBench::new(model.clone(), *global_batch)?;
    let states = StatesSpec::Memory;
    bench.programs().iter().try_for_each(|program| resources::check(program, 1, &Launch::THREADS, &states, 0))?;
    let cores = cores();
    let measured = bars::measuring(|told| bench.measure(*steps, cores, &mut |progress| told(progress)))?;
    let report =
        SimulationReport { model: &model, global_batch: *global_batch, cores, steps: *steps, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// Configurations that complete searches settle in a second, on one core.
fn plan(arguments: &BenchPlanArguments) -> Result<(), Failure> {
    let measured = bars::measuring(|told| searches::measure(arguments.runs, &mut |progress| told(progress)))?;
    if arguments.json {
        print_json(&told::SearchesReport { version: ReportVersion::CURRENT, searches: measured })
    } else {
        print_text(told::searches(&measured))
    }
}

/// The layout that was asked for: one rank without `--grid` and `--ranks`.
fn layout(
    arguments: &LayoutArguments,
    model: &Model,
    dtype: Option<ElementType>,
    launch: &Launch,
) -> Result<Layout, Failure> {
    let usual = LayoutDefaults { ranks: 1, ..LayoutDefaults::USUAL };
    let open = arguments.said(dtype).open(&launch.defaults(&usual)?)?;
    Ok(step::layout(open, model)?)
}
