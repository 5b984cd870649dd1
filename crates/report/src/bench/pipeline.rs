//! Schedules against each other, where passes have given lengths.

use quadrille_measure::pipeline::{Run, SLOWDOWN};
use quadrille_run::units::percent;
use quadrille_spec::{Schedule, counted};
use serde::Serialize;

use crate::{ReportVersion, Text, table};

/// What was measured, as `bench pipeline --json` prints it.
#[derive(Serialize)]
pub struct PipelineReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Stages.
    pub stages: usize,
    /// Microbatches of a step.
    pub microbatches: usize,
    /// Milliseconds of a forward pass.
    pub pass_ms: f64,
    /// Measured steps.
    pub steps: u64,
    /// By scenario, 1F1B first.
    pub runs: Vec<Run>,
}

impl PipelineReport {
    /// A table for people, and what came of message-driven passes.
    pub fn text(&self) -> Text {
        let Self { stages, microbatches, pass_ms, steps, runs, .. } = self;
        let head = format!(
            "{}, {}, passes of {pass_ms} ms forward and {} ms backward; median of \
             {}\nslow stage: stage {} takes {SLOWDOWN} times as long; delays: messages take 0 to {} ms\n\n",
            counted(*stages, "stage"),
            counted(*microbatches, "microbatch"),
            2.0 * pass_ms,
            counted(*steps as usize, "step"),
            stages / 2,
            2.0 * pass_ms
        );
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
        let rows = table(&header, &runs.iter().map(row).collect::<Vec<_>>());
        Text::from(head) + rows + format!("\nmessage-driven against 1f1b: {}\n", verdicts.join(", "))
    }
}

fn row(run: &Run) -> Vec<String> {
    let chunks = if run.chunks > 1 { format!(", {} chunks", run.chunks) } else { String::new() };
    let simulated = run.simulated_ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    vec![
        format!("{:<14}  {}{chunks}", run.scenario, run.schedule),
        format!("{:.1}", run.step_ms),
        simulated,
        format!("{:.1}", run.ideal_ms),
        percent(run.relative_to_1f1b),
    ]
}
