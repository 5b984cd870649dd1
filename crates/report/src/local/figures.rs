//! Figures of a comparison: measured against predicted times, and what steps are spent on.

use quadrille_measure::local::{Comparison, Row};
use quadrille_run::units::seconds;

use super::name as name_of;
use crate::drawing::{Anchor, Drawing};

const FONT: f64 = 12.0;
const GREY: &str = "#dddddd";
/// Free space on the left, at the top, on the right and at the bottom.
const MARGINS: [f64; 4] = [90.0, 40.0, 260.0, 60.0];
/// Length of the scatter plot's sides.
const SIDE: f64 = 440.0;
const OF_THE_BEST: &str = "#e67e22";
const OF_THE_OTHERS: &str = "#3b6fb6";
/// Compute, exposed communication, other.
const PARTS: [(&str, &str); 3] = [("#3b6fb6", "compute"), ("#c0392b", "exposed communication"), ("#b2babb", "other")];
/// Length of the longest bar.
const LONGEST: f64 = 480.0;
/// Height of a bar.
const BAR: f64 = 13.0;
/// Height of the two bars of a layout, with the space below.
const LAYOUT: f64 = 36.0;

/// A point for every layout at its measured and predicted time, both axes logarithmic and alike, with the diagonal on
/// which predictions are exact.
pub fn scatter(comparison: &Comparison) -> String {
    let [left, top, right, bottom] = MARGINS;
    let mut drawing = Drawing::new(left + SIDE + right, top + SIDE + bottom);
    drawing.text(left, 22.0, Anchor::Start, 15.0, "Predicted against measured seconds of a step");
    let pairs = || comparison.rows.iter().filter_map(Row::pair);
    let times = || pairs().flat_map(|pair| [pair.predicted, pair.measured]);
    // Points at the ends keep clear of the borders.
    let least = 0.93 * times().fold(f64::INFINITY, f64::min);
    let most = 1.07 * times().fold(0.0, f64::max);
    let along = |value: f64| SIDE * (value / least).ln() / (most / least).ln();
    let (x_of, y_of) = (|value: f64| left + along(value), |value: f64| top + SIDE - along(value));
    for part in 0..=4 {
        let value = least * (most / least).powf(f64::from(part) / 4.0);
        let (x, y) = (x_of(value), y_of(value));
        drawing.line(&untitled([(left, y), (left + SIDE, y)]), GREY, 1.0);
        drawing.line(&untitled([(x, top), (x, top + SIDE)]), GREY, 1.0);
        drawing.text(left - 8.0, y + 4.0, Anchor::End, FONT, &seconds(value));
        drawing.text(x, top + SIDE + 18.0, Anchor::Middle, FONT, &seconds(value));
    }
    drawing.text(left + SIDE / 2.0, top + SIDE + 42.0, Anchor::Middle, FONT, "measured");
    drawing.text(left - 8.0, top - 14.0, Anchor::End, FONT, "predicted");
    drawing.line(&untitled([(x_of(least), y_of(least)), (x_of(most), y_of(most))]), "#888888", 1.0);
    let best = comparison.best();
    let among = |place: Option<usize>| place.is_some_and(|place| place <= best);
    // The best are drawn last, above the others.
    for row in comparison.rows.iter().rev() {
        let Some(pair) = row.pair() else { continue };
        let fill = if among(row.places[1]) { OF_THE_BEST } else { OF_THE_OTHERS };
        let border = if among(row.places[0]) { "black" } else { "none" };
        drawing.circle([x_of(pair.measured), y_of(pair.predicted), 5.0], fill, border, &told(row));
    }
    let (measured, predicted) =
        (format!("the {best} best measured"), format!("black border: the {best} best predicted"));
    let legend = left + SIDE + 20.0;
    drawing.legend(legend, top, FONT, [(OF_THE_BEST, measured.as_str()), (OF_THE_OTHERS, "the others")]);
    drawing.text(legend, top + 56.0, Anchor::Start, FONT, &predicted);
    drawing.text(legend, top + 76.0, Anchor::Start, FONT, "grey line: predicted as measured");
    drawing.finish()
}

/// Two bars for every layout, the fastest measured first: the parts of the predicted and of the measured step.
pub fn bars(comparison: &Comparison) -> String {
    let [left, top, right] = [200.0, 110.0, 180.0];
    let rows = &comparison.rows;
    let mut drawing = Drawing::new(left + LONGEST + right, top + LAYOUT * rows.len() as f64 + 10.0);
    drawing.text(10.0, 22.0, Anchor::Start, 15.0, "What a step is spent on");
    drawing.legend(10.0, 34.0, FONT, PARTS);
    let times = rows.iter().flat_map(|row| {
        let predicted = row.pair().map_or(0.0, |pair| pair.predicted);
        [predicted, row.measured.seconds]
    });
    let most = times.fold(0.0, f64::max);
    for (index, row) in rows.iter().enumerate() {
        let y = top + LAYOUT * index as f64;
        drawing.text(left - 10.0, y + BAR + 4.0, Anchor::End, FONT, &name_of(row));
        let both = [("predicted", row.predicted_parts()), ("measured", Some(row.measured_parts()))];
        for (line, (side, parts)) in both.into_iter().enumerate() {
            let (mut x, y) = (left, y + BAR * line as f64);
            let Some(parts) = parts else {
                drawing.text(x, y + 10.0, Anchor::Start, 10.0, "not predicted");
                continue;
            };
            for (part, (colour, name)) in parts.into_iter().zip(PARTS) {
                let long = LONGEST * part / most;
                let title = format!("{}, {side} {name}: {}", name_of(row), seconds(part));
                drawing.rectangle([x, y, long, BAR - 1.0], colour, &title);
                x += long;
            }
            let total = parts.iter().sum();
            drawing.text(x + 6.0, y + 10.0, Anchor::Start, 10.0, &format!("{side} {}", seconds(total)));
        }
    }
    drawing.finish()
}

fn untitled(points: [(f64, f64); 2]) -> [(f64, f64, String); 2] {
    points.map(|(x, y)| (x, y, String::new()))
}

/// What is shown under the pointer.
fn told(row: &Row) -> String {
    let place = |at: usize| row.places[at].map_or("-".to_owned(), |place| place.to_string());
    let predicted = row.pair().map_or("-".to_owned(), |pair| seconds(pair.predicted));
    let measured = seconds(row.measured.seconds);
    format!("{}: predicted {predicted} (place {}), measured {measured} (place {})", name_of(row), place(0), place(1))
}
