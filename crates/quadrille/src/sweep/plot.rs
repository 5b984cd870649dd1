//! Plots of a sweep: the parts of a step as stacked bars where one number varies, lines where two do.

use quadrille_plan::native::Ranked;
use quadrille_plan::native::explain::Part;

use super::variable::short;
use super::{Point, Sweep};
use crate::drawing::{Anchor, Drawing};
use crate::plan::native::describe::{seconds, share, sizes};

const HEIGHT: f64 = 420.0;
/// Free space on the left, at the top, on the right (for the legend) and at the bottom.
const MARGINS: [f64; 4] = [70.0, 50.0, 190.0, 70.0];
const FONT: f64 = 12.0;

/// One for each of `Part::ALL`: blues for arithmetic, memory and launches, warm ones for communication.
const COLOURS: [&str; 12] = [
    "#3b6fb6", "#7fb2e5", "#bcd9f2", "#c0392b", "#e67e22", "#f1c40f", "#9b59b6", "#d98880", "#7d6608", "#b2babb",
    "#27ae60", "#5d6d7e",
];

impl Sweep<'_> {
    /// The plot as SVG.
    pub fn plot(&self) -> String {
        match self.variables {
            [_] => self.bars(),
            _ => self.lines(),
        }
    }

    fn title(&self) -> String {
        let vary = self.variables.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        format!("{}, best layouts by {vary}", self.name())
    }

    /// A bar for every value: the share of each part of the best layout's step, and above it the step's time.
    fn bars(&self) -> String {
        let [left, top, right, bottom] = MARGINS;
        let step = (900.0 / self.points.len() as f64).clamp(24.0, 110.0);
        let width = left + right + step * self.points.len() as f64;
        let (height, floor) = (HEIGHT - top - bottom, HEIGHT - bottom);
        let mut drawing = Drawing::new(width, HEIGHT);
        drawing.text(left, 20.0, Anchor::Start, 15.0, &self.title());
        for percent in [0, 25, 50, 75, 100] {
            let y = floor - height * f64::from(percent) / 100.0;
            drawing.text(left - 8.0, y + 4.0, Anchor::End, FONT, &format!("{percent}%"));
            drawing.line(&level(left, width - right, y), "#dddddd", 1.0);
        }
        for (index, point) in self.points.iter().enumerate() {
            let (x, bar) = (left + step * (index as f64 + 0.15), 0.7 * step);
            let middle = x + bar / 2.0;
            drawing.text(middle, floor + 18.0, Anchor::Middle, FONT, &short(point.values[0]));
            let Ok(Ranked { candidate, price }) = &point.best else {
                drawing.text(middle, floor - 6.0, Anchor::Middle, FONT, "none");
                continue;
            };
            drawing.text(middle, top - 6.0, Anchor::Middle, FONT, &seconds(price.seconds));
            let mut y = floor;
            for (part, colour) in Part::ALL.iter().zip(COLOURS) {
                let time = part.of(&price.parts);
                let tall = height * time / price.seconds;
                y -= tall;
                if time > 0.0 {
                    let title = format!(
                        "{}: {} ({}) of {}, {}",
                        part.name(),
                        seconds(time),
                        share(time, price),
                        seconds(price.seconds),
                        sizes(candidate.sizes)
                    );
                    drawing.rectangle([x, y, bar, tall], colour, &title);
                }
            }
        }
        drawing.text(
            left,
            floor + 42.0,
            Anchor::Start,
            FONT,
            &format!("{}; above the bars the time of a step", self.variables[0]),
        );
        self.legend_of_parts(&mut drawing, width - right + 16.0, top);
        drawing.finish()
    }

    fn legend_of_parts(&self, drawing: &mut Drawing, x: f64, top: f64) {
        let priced = || self.points.iter().filter_map(|point| point.best.as_ref().ok());
        let present = |part: &Part| priced().any(|ranked| part.of(&ranked.price.parts) > 0.0);
        let shown = Part::ALL.iter().zip(COLOURS).filter(|(part, _)| present(part));
        drawing.legend(x, top, FONT, shown.map(|(part, colour)| (colour, part.name())));
    }

    /// Days of training (or seconds of a step where the tokens are not known) over the first variable, or over the number
    /// of GPUs if that varies, a line for every value of the other; both axes logarithmic.
    fn lines(&self) -> String {
        let [left, top, right, bottom] = MARGINS;
        let (width, floor) = (left + 620.0 + right, HEIGHT - bottom);
        let across = self.variables.iter().position(super::Variable::is_gpus).unwrap_or(0);
        let along = 1 - across;
        let mut drawing = Drawing::new(width, HEIGHT);
        drawing.text(left, 20.0, Anchor::Start, 15.0, &self.title());
        let unit = if self.case.tokens.is_some() { "days of training" } else { "seconds of a step" };
        drawing.text(left, 38.0, Anchor::Start, FONT, &format!("{unit} over {}", self.variables[across]));
        let heights: Vec<f64> = self.points.iter().filter_map(|point| self.height(point)).collect();
        let least = heights.iter().copied().fold(f64::INFINITY, f64::min);
        let most = heights.iter().copied().fold(0.0, f64::max);
        let scale = |value: f64, least: f64, most: f64| match most > least {
            true => (value / least).ln() / (most / least).ln(),
            false => 0.5,
        };
        let values = &self.variables[across].values;
        let (first, last) = (values[0], values[values.len() - 1]);
        let x_of = |value: f64| left + 620.0 * scale(value, first, last);
        let y_of = |value: f64| floor - (floor - top - 10.0) * scale(value, least, most);
        for value in values {
            drawing.text(x_of(*value), floor + 18.0, Anchor::Middle, FONT, &short(*value));
        }
        if heights.is_empty() {
            drawing.text(left + 310.0, floor - 100.0, Anchor::Middle, FONT, "no layout fits anywhere");
            return drawing.finish();
        }
        for part in 0..=4 {
            let value = least * (most / least).powf(f64::from(part) / 4.0);
            drawing.text(left - 8.0, y_of(value) + 4.0, Anchor::End, FONT, &significant(value));
            drawing.line(&level(left, width - right, y_of(value)), "#dddddd", 1.0);
        }
        for (index, value) in self.variables[along].values.iter().enumerate() {
            let colour = COLOURS[(index * 3) % COLOURS.len()];
            let points = self.points.iter().filter(|point| point.values[along] == *value);
            let line: Vec<_> = points
                .filter_map(|point| {
                    let (height, best) = (self.height(point)?, point.best.as_ref().ok()?);
                    let title = format!("{}: {}", significant(height), sizes(best.candidate.sizes));
                    Some((x_of(point.values[across]), y_of(height), title))
                })
                .collect();
            drawing.line(&line, colour, 2.0);
            let name = format!("{} {}", self.variables[along], short(*value));
            drawing.legend(width - right + 16.0, top + 20.0 * index as f64, FONT, [(colour, name.as_str())]);
        }
        drawing.finish()
    }

    /// What lines show of a point.
    fn height(&self, point: &Point) -> Option<f64> {
        let best = point.best.as_ref().ok()?;
        Some(match self.case.tokens {
            Some(tokens) => {
                let step = (point.case.global_batch * point.case.seq_len) as f64;
                tokens / step * best.price.seconds / 86_400.0
            }
            None => best.price.seconds,
        })
    }
}

fn level(left: f64, right: f64, y: f64) -> [(f64, f64, String); 2] {
    [(left, y, String::new()), (right, y, String::new())]
}

/// Three significant digits.
fn significant(value: f64) -> String {
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}
