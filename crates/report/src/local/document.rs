//! A comparison as JSON and as rows of CSV, with the same names: units at their end, percentages of the measured value.

use quadrille_measure::local::{Comparison, Row};
use quadrille_plan::local::{Predicted, WARM_UP_STEPS};
use quadrille_run::shown_layout;
use quadrille_spec::Axis;
use serde_json::{Map, Value, json};

use super::{LocalReport, not_predicted};
use crate::candidate::layout_notation;

impl LocalReport<'_> {
    /// The whole document, as `validate local --json` prints it.
    pub fn document(&self) -> Value {
        let Self { grids, comparison, cores } = self;
        let case = &grids.case;
        let layouts: Vec<Value> = comparison.rows.iter().map(entry).collect();
        json!({
            "model": case.model,
            "cluster": case.cluster.name,
            "assumed": grids.assumed,
            "ranks": grids.ranks,
            "threads_per_rank": case.options.threads,
            "cores": cores,
            "device": grids.device,
            "global_batch": grids.global_batch,
            "seq_len": grids.seq_len,
            "steps": case.options.steps,
            "measured_steps": case.options.steps - WARM_UP_STEPS as u64,
            "seed": case.options.seed,
            "legal_layouts": grids.legal,
            "summary": summary(comparison),
            "layouts": layouts,
            "skipped": grids.skipped,
        })
    }
}

/// A row with what does not fit into a table.
fn entry(row: &Row) -> Value {
    let mut entry: Map<String, Value> = fields(row).into_iter().collect();
    entry.insert("measured_seconds_each".to_owned(), json!(row.measured.each));
    entry.insert("ledger_equal".to_owned(), json!(row.ledger_equal));
    entry.insert("layout".to_owned(), json!(shown_layout(&row.layout)));
    Value::Object(entry)
}

fn summary(comparison: &Comparison) -> Value {
    let summary = &comparison.summary;
    let errors = summary.errors;
    let agreement: Vec<Value> =
        summary.agreement.iter().map(|of| json!({ "best": of.best, "common": of.common })).collect();
    let grid = |row: Option<&Row>| row.map(|row| row.layout.grid.to_string());
    json!({
        "layouts": errors.count,
        "mean_absolute_error_percent": 100.0 * errors.mean_absolute,
        "largest_absolute_error_percent": 100.0 * errors.largest,
        "bias_percent": 100.0 * errors.bias,
        "agreement": agreement,
        "kendall_tau_b": summary.kendall_tau_b,
        "pearson_of_logs": summary.pearson_of_logs,
        "regret_percent": 100.0 * summary.regret,
        "median_deviation_percent": comparison.noise().map(|noise| 100.0 * noise),
        "predicted_best": grid(comparison.predicted_best()),
        "measured_best": grid(comparison.measured_best()),
    })
}

/// What a row of a table holds; `null` where nothing was predicted or a single step was measured.
fn fields(row: &Row) -> Vec<(String, Value)> {
    let predicted = row.predicted.as_ref().ok();
    let of = |value: fn(&Predicted) -> f64| json!(predicted.map(value));
    let measured = &row.measured;
    let named = [
        ("notation", json!(layout_notation(&row.layout))),
        ("grid", json!(row.layout.grid.to_string())),
        ("predicted_place", json!(row.places[0])),
        ("measured_place", json!(row.places[1])),
        ("predicted_seconds", of(|step| step.seconds)),
        ("measured_seconds", json!(measured.seconds)),
        ("measured_deviation_seconds", json!(measured.deviation)),
        ("error_percent", json!(row.pair().map(|pair| 100.0 * pair.error()))),
        ("predicted_compute_seconds", of(|step| step.compute)),
        ("predicted_exposed_seconds", of(Predicted::exposed)),
        ("predicted_other_seconds", of(|step| step.other)),
        ("measured_compute_seconds", json!(measured.compute)),
        ("measured_exposed_seconds", json!(measured.exposed)),
        ("measured_other_seconds", json!(measured.other)),
    ];
    // Expert is data by another name where there are no experts, and then of size 1.
    let expert = row.layout.grid.size(Axis::Expert) > 1;
    let axes = Axis::ALL.into_iter().filter(|axis| *axis != Axis::Expert || expert).map(|axis| {
        let seconds = predicted.map(|step| step.communication[axis as usize]);
        (format!("predicted_exposed_{axis}_seconds"), json!(seconds))
    });
    let last = [
        ("predicted_exposed_bubble_seconds", of(|step| step.bubble)),
        ("not_predicted_because", json!(not_predicted(row))),
    ];
    let owned = |(name, value): (&str, Value)| (name.to_owned(), value);
    named.into_iter().map(owned).chain(axes).chain(last.into_iter().map(owned)).collect()
}

/// The header and a row for every layout.
pub fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let cell = |value: Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let rows: Vec<Vec<(String, Value)>> = comparison.rows.iter().map(fields).collect();
    let header = rows.first().map(|row| row.iter().map(|(name, _)| name.clone()).collect());
    let body = rows.into_iter().map(|row| row.into_iter().map(|(_, value)| cell(value)).collect());
    header.into_iter().chain(body).collect()
}
