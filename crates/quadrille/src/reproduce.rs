//! `quadrille reproduce`: figures printed in the source works beside ours.

use std::path::Path;

use quadrille_papers::reproduce::{PARTS, Part, Point, Summary};
use serde::Serialize;

use crate::arguments::{ALL_PARTS, ReproduceArguments};
use crate::failure::Failure;
use crate::output::{csv, print_json, print_text, shortest, table};

#[derive(Serialize)]
struct Document {
    parts: Vec<PartDocument>,
}

#[derive(Serialize)]
struct PartDocument {
    part: &'static str,
    work: &'static str,
    points: Vec<PointDocument>,
    summary: SummaryDocument,
}

#[derive(Serialize)]
struct PointDocument {
    what: String,
    /// Table, figure or section of the work.
    source: String,
    /// Of a range the number nearest to ours.
    published: f64,
    ours: f64,
    unit: &'static str,
    deviation_percent: f64,
    /// To the last printed digit.
    agrees: bool,
    /// Why it does not.
    note: Option<String>,
}

#[derive(Serialize)]
struct SummaryDocument {
    points: usize,
    agreeing: usize,
    mean_absolute_deviation_percent: f64,
    max_absolute_deviation_percent: f64,
}

/// Computes the points of the works that were asked for and prints them.
pub fn run(arguments: &ReproduceArguments) -> Result<(), Failure> {
    let wanted = PARTS.into_iter().filter(|part| [part.name, ALL_PARTS].contains(&arguments.part.as_str()));
    let computed = wanted.map(|part| Ok((part, part.points()?))).collect::<Result<Vec<_>, Failure>>()?;
    if let Some(path) = &arguments.csv {
        write(path, &lines(&computed)?)?;
    }
    if arguments.json {
        return print_json(&Document { parts: computed.into_iter().map(document).collect() });
    }
    let parts: Vec<String> = computed.iter().map(|(part, points)| text(part, points)).collect();
    print_text(&parts.join("\n"))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}

fn document((part, points): (Part, Vec<Point>)) -> PartDocument {
    let Summary { points: number, agreeing, mean, max } = Summary::of(&points);
    let point = |point: Point| PointDocument {
        deviation_percent: 100.0 * point.deviation(),
        agrees: point.agrees(),
        published: point.published.nearest(point.ours),
        what: point.what,
        source: point.source,
        ours: point.ours,
        unit: point.unit,
        note: point.note,
    };
    PartDocument {
        part: part.name,
        work: part.work,
        points: points.into_iter().map(point).collect(),
        summary: SummaryDocument {
            points: number,
            agreeing,
            mean_absolute_deviation_percent: 100.0 * mean,
            max_absolute_deviation_percent: 100.0 * max,
        },
    }
}

/// A header, and a line per point; figures as printed, ours in full.
fn lines(computed: &[(Part, Vec<Point>)]) -> Result<String, Failure> {
    let header = ["part", "source", "what", "published", "ours", "unit", "deviation_percent", "agrees", "note"];
    let line = |part: &Part, point: &Point| {
        vec![
            part.name.to_owned(),
            point.source.clone(),
            point.what.clone(),
            point.published.to_string(),
            shortest(point.ours),
            point.unit.to_owned(),
            shortest(100.0 * point.deviation()),
            point.agrees().to_string(),
            point.note.clone().unwrap_or_default(),
        ]
    };
    let points = computed.iter().flat_map(|(part, points)| points.iter().map(move |point| line(part, point)));
    csv(std::iter::once(header.map(str::to_owned).to_vec()).chain(points))
}

/// A table of a part's points, its notes, and the summary.
fn text(part: &Part, points: &[Point]) -> String {
    let mut notes: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for point in points {
        let note = point.note.as_deref().map(|note| {
            let at = notes.iter().position(|known| *known == note).unwrap_or_else(|| {
                notes.push(note);
                notes.len() - 1
            });
            format!("({})", at + 1)
        });
        // One digit more than was printed shows what was rounded.
        let digits = point.published.decimals() + 1;
        rows.push(vec![
            point.what.clone(),
            point.source.clone(),
            point.published.to_string(),
            format!("{:.digits$}", point.ours),
            point.unit.to_owned(),
            percent(point.deviation()),
            note.unwrap_or_default(),
        ]);
    }
    let Summary { points: number, agreeing, mean, max } = Summary::of(points);
    let mut text = format!("{}: {}\n\n", part.name, part.work);
    text += &table(&["figure", "source", "published", "ours", "unit", "deviation", "note"], &rows);
    text += "\n";
    for (at, note) in notes.iter().enumerate() {
        text += &format!("({}) {note}\n", at + 1);
    }
    text += &format!(
        "{}: {number} points, {agreeing} agree to the last printed digit; absolute deviation {:.2}% in the mean, {:.2}% \
         at most\n",
        part.name,
        100.0 * mean,
        100.0 * max
    );
    text
}

/// `+1.25%`; without a sign where it rounds to nothing.
fn percent(share: f64) -> String {
    let rounded = format!("{:+.2}%", 100.0 * share);
    if rounded.ends_with("0.00%") && share.abs() < 0.01 { "0.00%".to_owned() } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_a_sign_unless_they_are_nothing() {
        let shown = [0.0125, -0.0125, 1e-9, -1e-9, 0.1, -2.0].map(percent);
        assert_eq!(shown, ["+1.25%", "-1.25%", "0.00%", "0.00%", "+10.00%", "-200.00%"]);
    }
}
