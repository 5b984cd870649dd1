//! `quadrille bench pipeline`: schedules against each other, where passes have given lengths.

use quadrille_measure::pipeline::{PipelineBench, Run, SLOWDOWN};
use quadrille_run::resources;
use quadrille_run::units::percent;
use quadrille_spec::Schedule;
use serde::Serialize;

use crate::bench::arguments::BenchPipelineArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text, table};

#[derive(Serialize)]
struct Document {
    stages: usize,
    microbatches: usize,
    /// Of a forward pass.
    pass_ms: f64,
    /// Measured ones.
    steps: u64,
    /// By scenario, 1F1B first.
    runs: Vec<Run>,
}

/// Measures and reports.
pub fn run(arguments: &BenchPipelineArguments) -> Result<(), Failure> {
    let (stages, microbatches) = (usize::from(arguments.stages), usize::from(arguments.microbatches));
    let bench = PipelineBench::new(stages, microbatches, arguments.pass_ms)?;
    bench.programs().iter().try_for_each(|program| resources::check(program, 1, &Launch::THREADS, 0))?;
    let runs = bench.measure(arguments.steps)?;
    let document = Document { stages, microbatches, pass_ms: arguments.pass_ms, steps: arguments.steps, runs };
    if arguments.json { print_json(&document) } else { print_text(&text(&document)) }
}

fn text(document: &Document) -> String {
    let Document { stages, microbatches, pass_ms, steps, runs } = document;
    let head = format!(
        "{stages} stages, {microbatches} microbatches, passes of {pass_ms} ms forward and {} ms backward; median of \
         {steps} step(s)\nslow stage: stage {} takes {SLOWDOWN} times as long; delays: messages take 0 to {} ms\n\n",
        2.0 * pass_ms,
        stages / 2,
        2.0 * pass_ms
    );
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            let chunks = if run.chunks > 1 { format!(", {} chunks", run.chunks) } else { String::new() };
            let simulated = run.simulated_ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
            vec![
                format!("{:<14}  {}{chunks}", run.scenario, run.schedule),
                format!("{:.1}", run.step_ms),
                simulated,
                format!("{:.1}", run.ideal_ms),
                percent(run.relative_to_1f1b),
            ]
        })
        .collect();
    let header = [
        "scenario        schedule",
        "measured ms",
        "simulated ms (mean delay)",
        "without bubble ms",
        "measured / 1f1b",
    ];
    let driven = runs.iter().filter(|run| run.schedule == Schedule::MessageDriven);
    let verdicts: Vec<String> =
        driven.map(|run| format!("{} {:+.1}%", run.scenario, 100.0 * (run.relative_to_1f1b - 1.0))).collect();
    head + &table(&header, &rows) + &format!("\nmessage-driven against 1f1b: {}\n", verdicts.join(", "))
}
