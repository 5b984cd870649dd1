//! A sweep for people: the best layout of every point, on a line.

use quadrille_plan::native::sweep::{Point, Sweep};
use quadrille_run::units::{decimal, seconds};
use quadrille_spec::SpecError;

use crate::plan::{COLUMNS, SPARE, cells};
use crate::{Text, table};

/// The numbers that vary beside the best layout that was found, then why there is none where there is none.
///
/// # Errors
/// None for what a sweep has found.
pub fn sweep_text(sweep: &Sweep) -> Result<Text, SpecError> {
    let (model, cluster) = (&sweep.question.model.name, &sweep.question.cluster.name);
    let names: Vec<String> = sweep.variables().map(ToString::to_string).collect();
    let mut reasons = String::new();
    let mut rows = Vec::new();
    for point in &sweep.points {
        let values: Vec<String> = point.values.iter().take(names.len()).map(|value| short(*value)).collect();
        match &point.best {
            Ok(best) => {
                let derived = point.question.derived(&point.question.setting()?, best);
                let step = seconds(best.price.seconds) + mark(point);
                rows.push(values.into_iter().chain([step]).chain(cells(best, &derived)).collect());
            }
            Err(reason) => {
                let at = names.iter().zip(&values).map(|(name, value)| format!("{name} {value}"));
                reasons += &format!("none of {}: {reason}\n", at.collect::<Vec<_>>().join(", "));
                rows.push(values);
            }
        }
    }
    let mut text = Text::heading(&format!("{model} on {cluster}, best layouts by {}", names.join(" and ")));
    let header: Vec<&str> = names.iter().map(String::as_str).chain(["step"]).chain(COLUMNS).collect();
    text += table(&header, &rows).spare(&SPARE);
    if sweep.points.iter().any(|point| point.stopped) {
        text += "(!) stopped by `search.time_limit` before everything was looked at: the best so far\n";
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
