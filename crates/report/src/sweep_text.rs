//! A sweep for people: the best layout of every point, on a line.

use std::collections::BTreeMap;

use quadrille_plan::native::sweep::{Point, Sweep};
use quadrille_run::units::{decimal, seconds};
use quadrille_spec::SpecError;

use crate::candidate::notation;
use crate::plan::{COLUMNS, SPARE, band, cells, counted, ends};
use crate::{Text, table};

/// Column of the error band, which a narrow terminal leaves out last.
const BAND: &str = "error band";

/// The numbers that vary beside the best layout that was found, then why there is none where there is none.
///
/// # Errors
/// None for what a sweep has found.
pub fn sweep_text(sweep: &Sweep) -> Result<Text, SpecError> {
    let model = &sweep.question.model.name;
    let cluster = &sweep.question.cluster.name;
    let names: Vec<String> = sweep.variables().map(ToString::to_string).collect();
    let mut reasons = String::new();
    // Points without an error band, by the reason.
    let mut unlike: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let found = sweep.points.iter().filter(|point| point.best.is_ok()).count();
    for point in &sweep.points {
        let values: Vec<String> = point.values.iter().take(names.len()).map(|value| short(*value)).collect();
        let at =
            || names.iter().zip(&values).map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
        match &point.best {
            Ok(best) => {
                let band = band(&point.question, &best.candidate).map(|band| ends(&band)).unwrap_or_else(|missing| {
                    unlike.entry(missing.to_string()).or_default().push(at());
                    "-".to_owned()
                });
                let derived = point.question.derived(&point.question.setting()?, best);
                let step = seconds(best.price.seconds) + mark(point);
                let layout = [notation(&best.candidate)].into_iter();
                rows.push(layout.chain(values).chain([step, band]).chain(cells(best, &derived)).collect());
            }
            Err(reason) => {
                reasons += &format!("none of {}: {reason}\n", at());
                rows.push(["none".to_owned()].into_iter().chain(values).collect());
            }
        }
    }
    let mut text = Text::new();
    if sweep.points.iter().any(|point| point.stopped) {
        text += "(!) SEARCH CUT by `search.limit` before everything was looked at: the best of what was\n";
    }
    text += Text::heading(&format!("{model} on {cluster}, best layouts by {}", names.join(" and ")));
    let header = ["layout"].into_iter().chain(names.iter().map(String::as_str)).chain(["step", BAND]).chain(COLUMNS);
    let spare: Vec<&str> = SPARE.into_iter().chain([BAND]).collect();
    text += table(&header.collect::<Vec<_>>(), &rows).spare(&spare);
    if found > 0 {
        text += format!("TFLOP/s, MFU: {}, of a device\n", counted(sweep.question.flops_convention));
    }
    if rows.iter().any(|row| row.get(names.len() + 2).is_some_and(|band| band != "-")) {
        text += "error band: what 8 of 10 published runs like it took less or more than was predicted of them\n";
    }
    for (missing, points) in unlike {
        let of = if points.len() == found { "all points".to_owned() } else { points.join("; ") };
        text += format!("no error band of {of}: {missing}\n");
    }
    Ok(text + reasons)
}

/// What is behind the time of a search that has not looked at everything.
fn mark(point: &Point) -> &'static str {
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
