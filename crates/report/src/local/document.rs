//! A comparison as a document and as rows of comma-separated values, with the same names: units at their end, percentages of the
//! measured value.

use quadrille_measure::local::{Comparison, Row};
use quadrille_plan::Skipped;
use quadrille_plan::local::{Predicted, WARM_UP_STEPS};
use quadrille_run::shown_layout;
use quadrille_spec::{Axis, LayoutFile, ModelFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LocalReport, not_predicted};
use crate::candidate::layout_notation;
use crate::{ReportError, ReportVersion};

/// Layouts, predicted and measured on this machine: what `validate local --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalDocument {
    /// Version of the document.
    pub version: ReportVersion,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Name of the cluster of the predictions.
    pub cluster: String,
    /// Sentence on numbers of the cluster that are assumed; null where none are.
    pub assumed: Option<String>,
    /// Number of ranks.
    pub ranks: usize,
    /// Threads of each rank.
    pub threads_per_rank: usize,
    /// Processors of the machine.
    pub cores: usize,
    /// Device of the ranks; null of the host.
    pub device: Option<String>,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Steps of each layout.
    pub steps: u64,
    /// Steps that count.
    pub measured_steps: u64,
    /// Seed of initial values and samples.
    pub seed: u64,
    /// Number of legal grids.
    pub legal_layouts: usize,
    /// Errors of the predictions.
    pub summary: LocalSummary,
    /// The layouts, in the measured order.
    pub layouts: Vec<LocalLayout>,
    /// Grids that did not run.
    pub skipped: Vec<Skipped>,
}

/// Layouts, predicted and measured, as their page shows them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalPage {
    /// The document.
    #[serde(flatten)]
    pub document: LocalDocument,
    /// Lines on the measurement.
    pub told: Vec<String>,
    /// Lines on the errors.
    pub summary_told: Vec<String>,
    /// Lines on what is left out.
    pub left_out: Vec<String>,
}

/// A layout, with all of its measured steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalLayout {
    /// Prediction and measurement.
    #[serde(flatten)]
    pub entry: LocalEntry,
    /// Seconds of each measured step.
    pub measured_seconds_each: Vec<f64>,
    /// True if predicted and counted ledgers are equal, as integers.
    pub ledger_equal: bool,
    /// Fields of the layout's file.
    pub layout: LayoutFile,
}

/// A layout, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalEntry {
    /// The layout in the usual notation.
    pub notation: String,
    /// The grid.
    pub grid: String,
    /// Place in the predicted order, from 1; null without a prediction.
    pub predicted_place: Option<usize>,
    /// Place in the measured order, from 1; null without a prediction.
    pub measured_place: Option<usize>,
    /// Predicted seconds of a step; null without a prediction.
    pub predicted_seconds: Option<f64>,
    /// Measured seconds of a step.
    pub measured_seconds: f64,
    /// Standard deviation of the measured seconds; null of one step.
    pub measured_deviation_seconds: Option<f64>,
    /// Predicted over measured seconds, less 1, in percent.
    pub error_percent: Option<f64>,
    /// Predicted seconds of computation.
    pub predicted_compute_seconds: Option<f64>,
    /// Predicted seconds of exposed communication.
    pub predicted_exposed_seconds: Option<f64>,
    /// Other predicted seconds.
    pub predicted_other_seconds: Option<f64>,
    /// Measured seconds of computation.
    pub measured_compute_seconds: f64,
    /// Measured seconds of exposed communication.
    pub measured_exposed_seconds: f64,
    /// Other measured seconds.
    pub measured_other_seconds: f64,
    /// Predicted seconds of exposed communication along x.
    pub predicted_exposed_x_seconds: Option<f64>,
    /// Predicted seconds of exposed communication along y.
    pub predicted_exposed_y_seconds: Option<f64>,
    /// Predicted seconds of exposed communication along z.
    pub predicted_exposed_z_seconds: Option<f64>,
    /// Predicted seconds of exposed communication along context.
    pub predicted_exposed_context_seconds: Option<f64>,
    /// Predicted seconds of exposed communication along expert; absent where the axis has one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_exposed_expert_seconds: Option<Option<f64>>,
    /// Predicted seconds of exposed communication along data.
    pub predicted_exposed_data_seconds: Option<f64>,
    /// Predicted seconds of exposed communication along pipe.
    pub predicted_exposed_pipe_seconds: Option<f64>,
    /// Predicted seconds of the bubble.
    pub predicted_exposed_bubble_seconds: Option<f64>,
    /// Reason why there is no prediction; null where there is one.
    pub not_predicted_because: Option<String>,
}

/// Errors of predictions, and of their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalSummary {
    /// Number of layouts with a prediction.
    pub layouts: usize,
    /// Mean of the absolute errors in percent.
    pub mean_absolute_error_percent: f64,
    /// Largest absolute error in percent.
    pub largest_absolute_error_percent: f64,
    /// Mean of the errors in percent.
    pub bias_percent: f64,
    /// Fastest layouts that both orders have.
    pub agreement: Vec<BestLayouts>,
    /// Kendall's tau-b of both orders; null of one layout.
    pub kendall_tau_b: Option<f64>,
    /// Correlation of the logarithms of both times; null of one layout.
    pub pearson_of_logs: Option<f64>,
    /// Time of the layout that is predicted to be fastest over that of the fastest, less 1, in percent.
    pub regret_percent: f64,
    /// Deviation of the steps of the median layout in percent; null of single steps.
    pub median_deviation_percent: Option<f64>,
    /// Grid that is predicted to be fastest.
    pub predicted_best: Option<String>,
    /// Fastest grid.
    pub measured_best: Option<String>,
}

/// Fastest layouts that both orders have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BestLayouts {
    /// Number of fastest layouts of each order.
    pub best: usize,
    /// Number of those that both have.
    pub common: usize,
}

impl LocalReport<'_> {
    /// The report as a document.
    pub fn document(&self) -> LocalDocument {
        let Self { grids, comparison, cores } = self;
        let case = &grids.case;
        LocalDocument {
            version: ReportVersion::CURRENT,
            model: ModelFile::of(&case.model),
            cluster: case.cluster.name.clone(),
            assumed: grids.assumed.as_ref().map(ToString::to_string),
            ranks: grids.ranks,
            threads_per_rank: case.options.threads,
            cores: *cores,
            device: grids.device.as_ref().map(ToString::to_string),
            global_batch: grids.global_batch,
            seq_len: grids.seq_len,
            steps: case.options.steps,
            measured_steps: case.options.steps - WARM_UP_STEPS as u64,
            seed: case.options.seed,
            legal_layouts: grids.legal,
            summary: summary(comparison),
            layouts: comparison.rows.iter().map(layout).collect(),
            skipped: grids.skipped.clone(),
        }
    }
}

/// A row with what does not fit into a table.
fn layout(row: &Row) -> LocalLayout {
    LocalLayout {
        entry: entry(row),
        measured_seconds_each: row.measured.each.clone(),
        ledger_equal: row.ledger_equal,
        layout: shown_layout(&row.layout),
    }
}

fn summary(comparison: &Comparison) -> LocalSummary {
    let summary = &comparison.summary;
    let errors = summary.errors;
    let grid = |row: Option<&Row>| row.map(|row| row.layout.grid.to_string());
    LocalSummary {
        layouts: errors.count,
        mean_absolute_error_percent: 100.0 * errors.mean_absolute,
        largest_absolute_error_percent: 100.0 * errors.largest,
        bias_percent: 100.0 * errors.bias,
        agreement: summary.agreement.iter().map(|of| BestLayouts { best: of.best, common: of.common }).collect(),
        kendall_tau_b: summary.kendall_tau_b,
        pearson_of_logs: summary.pearson_of_logs,
        regret_percent: 100.0 * summary.regret,
        median_deviation_percent: comparison.noise().map(|noise| 100.0 * noise),
        predicted_best: grid(comparison.predicted_best()),
        measured_best: grid(comparison.measured_best()),
    }
}

fn entry(row: &Row) -> LocalEntry {
    let predicted = row.predicted.as_ref().ok();
    let of = |value: fn(&Predicted) -> f64| predicted.map(value);
    let along = |axis: Axis| predicted.map(|step| step.communication[axis as usize]);
    let measured = &row.measured;
    // Expert is data by another name where there are no experts, and then of size 1.
    let has_expert = row.layout.grid.size(Axis::Expert) > 1;
    LocalEntry {
        notation: layout_notation(&row.layout),
        grid: row.layout.grid.to_string(),
        predicted_place: row.places[0],
        measured_place: row.places[1],
        predicted_seconds: of(|step| step.seconds),
        measured_seconds: measured.seconds,
        measured_deviation_seconds: measured.deviation,
        error_percent: row.pair().map(|pair| 100.0 * pair.error()),
        predicted_compute_seconds: of(|step| step.compute),
        predicted_exposed_seconds: of(Predicted::exposed),
        predicted_other_seconds: of(|step| step.other),
        measured_compute_seconds: measured.compute,
        measured_exposed_seconds: measured.exposed,
        measured_other_seconds: measured.other,
        predicted_exposed_x_seconds: along(Axis::X),
        predicted_exposed_y_seconds: along(Axis::Y),
        predicted_exposed_z_seconds: along(Axis::Z),
        predicted_exposed_context_seconds: along(Axis::Context),
        predicted_exposed_expert_seconds: has_expert.then(|| along(Axis::Expert)),
        predicted_exposed_data_seconds: along(Axis::Data),
        predicted_exposed_pipe_seconds: along(Axis::Pipe),
        predicted_exposed_bubble_seconds: of(|step| step.bubble),
        not_predicted_because: not_predicted(row),
    }
}

/// Header and rows of comma-separated values: a row for every layout, with the fields of [`LocalEntry`].
///
/// # Errors
/// An entry that is no object of JSON, which none is.
pub fn rows(comparison: &Comparison) -> Result<Vec<Vec<String>>, ReportError> {
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = |row: &Row| match serde_json::to_value(entry(row)) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(ReportError::Table(other.to_string())),
        Err(error) => Err(ReportError::Table(error.to_string())),
    };
    let rows = comparison.rows.iter().map(fields).collect::<Result<Vec<_>, _>>()?;
    let header = rows.first().map(|row| row.keys().cloned().collect());
    let body = rows.iter().map(|row| row.values().map(cell).collect());
    Ok(header.into_iter().chain(body).collect())
}
