//! Steps whose states come from below the device, beside the longer of computation and moves.

use quadrille_measure::optimizer::{MeasuredOptimizer, OptimizerRow, SLACK};
use quadrille_run::shown_layout;
use quadrille_run::units::{bytes, percent};
use quadrille_spec::{LayoutFile, Model};
use quadrille_step::StepProgram;
use serde::Serialize;

use crate::summary::summary;
use crate::{ReportVersion, Text, table};

/// What was measured of a program's states.
pub struct OptimizerReport<'a> {
    /// The program with states on the device.
    pub program: &'a StepProgram,
    /// Where they lie else.
    pub place: String,
    /// Its steps.
    pub measured: &'a MeasuredOptimizer,
}

#[derive(Serialize)]
struct Document<'a> {
    version: ReportVersion,
    model: &'a Model,
    layout: LayoutFile,
    states: &'a str,
    #[serde(flatten)]
    measured: &'a MeasuredOptimizer,
}

impl OptimizerReport<'_> {
    /// All of it, as `bench optimizer --json` prints it.
    pub fn document(&self) -> impl Serialize {
        let Self { program, place, measured } = self;
        Document {
            version: ReportVersion::CURRENT,
            model: &program.model,
            layout: shown_layout(&program.layout),
            states: place,
            measured,
        }
    }

    /// Model and layout, the step with states on the device, and a row for each number of buckets.
    pub fn text(&self) -> Text {
        let MeasuredOptimizer { threads, steps, compute_ms, compute_ms_each: [before, after], rows } = self.measured;
        let head = [
            ("threads", format!("{threads} per rank")),
            ("states", self.place.clone()),
            ("compute", format!("{compute_ms:.1} ms with states on the device ({before:.1} before, {after:.1} after)")),
            ("bound", format!("the longer of compute and moves, and {}; medians of {steps} steps", percent(SLACK))),
        ];
        let head: String = head.into_iter().map(|(name, value)| format!("{name:<8}{value}\n")).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
        let columns = [
            "buckets", "elements", "overlap", "moved", "copy ms", "moves ms", "step ms", "bound ms", "of bound",
            "repeated",
        ];
        Text::from(summary(self.program)) + head + "\n" + table(&columns, &rows).spare(&["copy ms", "elements"])
    }
}

fn row(row: &OptimizerRow) -> Vec<String> {
    vec![
        row.buckets.to_string(),
        row.bucket.to_string(),
        if row.optimizer_overlap { "yes" } else { "no" }.to_owned(),
        bytes(row.moved_bytes),
        format!("{:.1}", row.copy_ms),
        format!("{:.1}", row.transfer_ms),
        format!("{:.1}", row.step_ms),
        format!("{:.1}", row.bound_ms),
        percent(row.step_ms / row.bound_ms),
        row.repeated.to_string(),
    ]
}
