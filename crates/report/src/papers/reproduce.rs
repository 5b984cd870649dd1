//! Figures of the published works, compared with ours.

use quadrille_papers::reproduce::{Part, Point, Summary};
use quadrille_run::units::shortest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::columns;
use crate::{ReportVersion, Text, table};

/// Of comma-separated values.
const CSV_COLUMNS: &str = "part,source,what,published,ours,unit,deviation_percent,agrees,note";

/// A part of what is reproduced, with its points.
pub type Reproduced = (Part, Vec<Point>);

/// Figures of the published works, compared with ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproductionReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// The parts of the works.
    pub parts: Vec<ReproducedPart>,
}

/// A part of a work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproducedPart {
    /// Name of the part.
    pub part: String,
    /// The work.
    pub work: String,
    /// Its figures.
    pub points: Vec<ReproducedPoint>,
    /// Their deviations.
    pub summary: ReproductionSummary,
}

/// A printed figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproducedPoint {
    /// The figure in words.
    pub what: String,
    /// Its place in the work.
    pub source: String,
    /// The printed number; of a range the number nearest to ours.
    pub published: f64,
    /// Our number.
    pub ours: f64,
    /// Unit of both.
    pub unit: String,
    /// Deviation in percent of the printed number.
    pub deviation_percent: f64,
    /// True if both agree to the last printed digit.
    pub agrees: bool,
    /// Note on a difference; null if missing.
    pub note: Option<String>,
}

/// Deviations of figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproductionSummary {
    /// Number of figures.
    pub points: usize,
    /// Number of figures that agree to the last printed digit.
    pub agreeing: usize,
    /// Mean of the absolute deviations in percent.
    pub mean_absolute_deviation_percent: f64,
    /// Largest absolute deviation in percent.
    pub max_absolute_deviation_percent: f64,
}

/// The report as a document.
pub fn document(parts: &[Reproduced]) -> ReproductionReport {
    ReproductionReport { version: ReportVersion::CURRENT, parts: parts.iter().map(part).collect() }
}

fn part((part, points): &Reproduced) -> ReproducedPart {
    let Summary { points: number, agreeing, mean, max } = Summary::of(points);
    let point = |point: &Point| ReproducedPoint {
        what: point.what.clone(),
        source: point.source.clone(),
        published: point.published.nearest(point.ours),
        ours: point.ours,
        unit: point.unit.to_owned(),
        deviation_percent: 100.0 * point.deviation(),
        agrees: point.agrees(),
        note: point.note.clone(),
    };
    ReproducedPart {
        part: part.name.to_owned(),
        work: part.work.to_owned(),
        points: points.iter().map(point).collect(),
        summary: ReproductionSummary {
            points: number,
            agreeing,
            mean_absolute_deviation_percent: 100.0 * mean,
            max_absolute_deviation_percent: 100.0 * max,
        },
    }
}

/// For comma-separated values: a header, and a line per point; figures as printed, ours in full.
pub fn rows(parts: &[Reproduced]) -> Vec<Vec<String>> {
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
    let points = parts.iter().flat_map(|(part, points)| points.iter().map(move |point| line(part, point)));
    std::iter::once(columns(CSV_COLUMNS)).chain(points).collect()
}

/// For people, of each part a table of its points, its notes, and the summary.
pub fn text(parts: &[Reproduced]) -> Text {
    let between = |at| if at == 0 { "" } else { "\n" };
    parts.iter().enumerate().map(|(at, (part, points))| Text::from(between(at)) + text_of(part, points)).collect()
}

fn text_of(part: &Part, points: &[Point]) -> Text {
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
    let mut text = Text::heading(&format!("{}: {}", part.name, part.work)) + "\n";
    text += table(&["figure", "source", "published", "ours", "unit", "deviation", "note"], &rows).spare(&["source"]);
    text += "\n";
    for (at, note) in notes.iter().enumerate() {
        text += format!("({}) {note}\n", at + 1);
    }
    text += format!(
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
