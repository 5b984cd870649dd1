//! `quadrille bench step`: a whole optimizer step beside the rate of the matrix library.

use std::path::Path;

use quadrille_engine::{Hyper, LossScale, TrainOptions};
use quadrille_measure::step::measure;
use quadrille_report::bench::StepReport;
use quadrille_run::{described, resources};
use quadrille_step::StepProgram;

use crate::bench::arguments::BenchStepArguments;
use crate::bench::layout;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text};
use crate::settings;

/// Measures and reports.
pub fn run(arguments: &BenchStepArguments) -> Result<(), Failure> {
    let settings = settings::settings(&arguments.model, super::MODEL, Hyper::default())?;
    let layout = layout(&arguments.layout, &settings.model, arguments.dtype)?;
    let (states, steps) = (arguments.layout.states(), arguments.steps.saturating_add(1));
    let options = TrainOptions {
        states: states.folder().map(Path::to_owned),
        threads: settings::threads(&arguments.run, &Launch::THREADS, layout.grid.ranks())?,
        timeout: settings::timeout(&arguments.run)?,
        collectives: Launch::THREADS.collectives(&arguments.run, &described::cluster(arguments.layout.cluster())?),
        loss_scale: LossScale::usual(layout.dtype),
        ..TrainOptions::new(steps, settings::hyper(settings.optimizer, &arguments.run, steps)?, arguments.run.seed())
    };
    let program = StepProgram::new(&settings.model, &layout)?;
    resources::check(&program, options.threads, &Launch::THREADS, &states, 0)?;
    let measured = measure(&program, &options, !arguments.no_scaling)?;
    let report = StepReport { program: &program, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(&report.text()) }
}
