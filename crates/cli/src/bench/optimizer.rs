//! `quadrille bench optimizer`: steps whose states come in buckets from below the device.

use std::path::Path;

use quadrille_engine::{Hyper, TrainOptions};
use quadrille_measure::optimizer::OptimizerBench;
use quadrille_report::bench::OptimizerReport;
use quadrille_run::resources;
use quadrille_spec::{Field, Layout, Offload};
use quadrille_step::StepProgram;

use crate::bars;
use crate::bench::arguments::BenchOptimizerArguments;
use crate::bench::layout;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text};

/// Measures and reports.
pub fn run(arguments: &BenchOptimizerArguments) -> Result<(), Failure> {
    check_open(arguments)?;
    let settings = arguments.model.settings(super::MODEL, Hyper::default())?;
    let asked = layout(&arguments.layout, &settings.model, arguments.dtype, &Launch::THREADS)?;
    let layout = Layout { offload: Offload::None, ..asked };
    let steps = arguments.steps.saturating_add(1);
    let ranks = layout.grid.ranks();
    let states = arguments.layout.states();
    let hyper = arguments.run.hyper(settings.optimizer, steps)?;
    let cluster = arguments.layout.said(None).described_cluster()?;
    let options = TrainOptions {
        states: states.folder().map(Path::to_owned),
        threads: Launch::THREADS.threads(arguments.run.threads, ranks)?,
        timeout: arguments.run.timeout()?,
        collectives: Launch::THREADS.collectives(arguments.run.collectives(), &cluster.tiers),
        ..TrainOptions::new(steps, hyper, arguments.run.seed())
    };
    let bench = OptimizerBench { program: StepProgram::new(&settings.model, &layout)?, options };
    let check = |program: &StepProgram| resources::check(program, bench.options.threads, &Launch::THREADS, &states, 0);
    check(&bench.program)?;
    bench.programs()?.iter().try_for_each(check)?;
    let measured = bars::measuring(|told| bench.measure(&mut |progress| told(progress)))?;
    let place =
        states.folder().map_or("the host's memory".to_owned(), |folder| format!("files in {}", folder.display()));
    let report = OptimizerReport { program: &bench.program, place, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// Refuses what is measured in all its values.
fn check_open(arguments: &BenchOptimizerArguments) -> Result<(), Failure> {
    let said = &arguments.layout.flags.said;
    if said.get(Field::Offload).is_some_and(|value| value.to_string() == Offload::None.to_string()) {
        return Err(Failure::usage("--offload none: states below the device are measured; give host or a folder"));
    }
    let both = [Field::Bucket, Field::OptimizerOverlap];
    match both.into_iter().find(|field| said.get(*field).is_some()) {
        Some(field) => {
            Err(Failure::usage(format!("--{}: several are measured beside each other; leave it out", field.name())))
        }
        None => Ok(()),
    }
}
