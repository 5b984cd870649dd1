//! `quadrille bench pipeline`: schedules against each other, where passes have given lengths.

use quadrille_measure::pipeline::PipelineBench;
use quadrille_report::bench::PipelineReport;
use quadrille_run::{StatesSpec, resources};

use crate::bench::arguments::BenchPipelineArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text};

/// Measures and reports.
pub fn run(arguments: &BenchPipelineArguments) -> Result<(), Failure> {
    let (stages, microbatches) = (usize::from(arguments.stages), usize::from(arguments.microbatches));
    let bench = PipelineBench::new(stages, microbatches, arguments.pass_ms)?;
    bench
        .programs()
        .iter()
        .try_for_each(|program| resources::check(program, 1, &Launch::THREADS, &StatesSpec::Memory, 0))?;
    let runs = bench.measure(arguments.steps)?;
    let report = PipelineReport { stages, microbatches, pass_ms: arguments.pass_ms, steps: arguments.steps, runs };
    if arguments.json { print_json(&report) } else { print_text(&report.text()) }
}
