//! A sweep for people: the best layout of every point, on a line.

use std::collections::BTreeMap;

use quadrille_run::units::{decimal, seconds};

use crate::plan::{COLUMNS, SPARE, cells, counted, ends};
use crate::sweep::{SweepPoint, SweepReport};
use crate::{Text, table};

/// Column of the error band, which a narrow terminal leaves out last.
const BAND: &str = "error band";

/// The numbers that vary beside the best layouts, then the reasons why there is none where there is none.
pub fn sweep_text(report: &SweepReport) -> Text {
    let SweepReport { model, cluster, points, .. } = report;
    let names: Vec<String> = report.variables.iter().map(|variable| variable.name.clone()).collect();
    let mut reasons = String::new();
    // Points without an error band, by the reason.
    let mut unlike: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let found = points.iter().filter(|point| point.plan.is_some()).count();
    for point in points {
        let values: Vec<String> = point.values.iter().map(|value| short(*value)).collect();
        let at =
            || names.iter().zip(&values).map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
        let Some(plan) = &point.plan else {
            reasons += &format!("none of {}: {}\n", at(), point.reason.as_deref().unwrap_or_default());
            rows.push(["none".to_owned()].into_iter().chain(values).collect());
            continue;
        };
        let band = plan.error_band.as_ref().map(ends).unwrap_or_else(|| {
            let missing = plan.error_band_reason.clone().unwrap_or_default();
            unlike.entry(missing).or_default().push(at());
            "-".to_owned()
        });
        let step = seconds(plan.time_s) + mark(point);
        let layout = [plan.notation.clone()].into_iter();
        rows.push(layout.chain(values).chain([step, band]).chain(cells(plan)).collect());
    }
    let mut text = Text::new();
    if points.iter().any(|point| point.stopped) {
        text += "(!) SEARCH CUT by `search.limit` before everything was looked at: the best of what was\n";
    }
    text += Text::heading(&format!("{model} on {cluster}, best layouts by {}", names.join(" and ")));
    let header = ["layout"].into_iter().chain(names.iter().map(String::as_str)).chain(["step", BAND]).chain(COLUMNS);
    let spare: Vec<&str> = SPARE.into_iter().chain([BAND]).collect();
    text += table(&header.collect::<Vec<_>>(), &rows).spare(&spare);
    if found > 0 {
        text += format!("TFLOP/s, MFU: {}, of a device\n", counted(report.flops_convention));
    }
    if rows.iter().any(|row| row.get(names.len() + 2).is_some_and(|band| band != "-")) {
        text += "error band: what 8 of 10 published runs like it took less or more than was predicted of them\n";
    }
    for (missing, points) in unlike {
        let of = if points.len() == found { "all points".to_owned() } else { points.join("; ") };
        text += format!("no error band of {of}: {missing}\n");
    }
    text + reasons
}

/// What is behind the time of a search that has not looked at everything.
fn mark(point: &SweepPoint) -> &'static str {
    if point.stopped { " (!)" } else { "" }
}

/// A value of a variable.
fn short(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 && value.abs() < 1e7 => value.to_string(),
        1e7.. => decimal(value, "").trim_end().to_owned(),
        _ => format!("{value:.4}"),
    }
}
