//! `quadrille bench step`: a whole optimizer step beside the rate of the matrix library.

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

/// Measures and reports.
pub fn run(arguments: &BenchStepArguments) -> Result<(), Failure> {
    let settings = arguments.model.settings(super::MODEL, Hyper::default())?;
    let layout = layout(&arguments.layout, &settings.model, arguments.dtype)?;
    let cluster = described::cluster(arguments.layout.cluster())?;
    let steps = arguments.steps.saturating_add(1);
    let options = TrainOptions {
        threads: Launch::THREADS.threads(arguments.run.threads, layout.grid.ranks())?,
        timeout: arguments.run.timeout()?,
        collectives: Launch::THREADS.collectives(arguments.run.collectives(), &cluster.tiers),
        loss_scale: LossScale::usual(layout.dtype),
        ..TrainOptions::new(steps, arguments.run.hyper(settings.optimizer, steps)?, arguments.run.seed())
    };
    let program = StepProgram::new(&settings.model, &layout)?;
    resources::check(&program, options.threads, &Launch::THREADS, 0)?;
    let measured = measure(&program, &options, !arguments.no_scaling)?;
    let report = StepReport { program: &program, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(&report.text()) }
}
