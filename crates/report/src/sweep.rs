//! A sweep as rows, and pictures of it: the parts of a step as stacked bars where one number varies, lines where two do.

use std::path::Path;

use quadrille_plan::native::explain::Part;
use quadrille_plan::native::sweep::{Point, Sweep, Variable};
use quadrille_plan::native::{Question, Ranked};
use quadrille_run::units::seconds;
use quadrille_spec::SpecError;

use crate::candidate::{share, sizes};
use crate::drawing::{self, Anchor, Drawing};
use crate::plan::columns;

const HEIGHT: f64 = 420.0;
/// Between the first and the last value of lines.
const ACROSS: f64 = 620.0;
/// Free space on the left, at the top, on the right (for the legend) and at the bottom.
const MARGINS: [f64; 4] = [70.0, 50.0, 190.0, 70.0];
const FLOOR: f64 = HEIGHT - MARGINS[3];
const FONT: f64 = 12.0;

/// One for each of `Part::ALL`: blues for arithmetic, memory and launches, warm ones for communication.
const COLOURS: [&str; 13] = [
    "#3b6fb6", "#7fb2e5", "#bcd9f2", "#c0392b", "#e67e22", "#f1c40f", "#9b59b6", "#c39bd3", "#d98880", "#7d6608",
    "#b2babb", "#27ae60", "#5d6d7e",
];

/// How a picture is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlotFormat {
    /// The picture alone.
    Svg,
    /// A page with a table.
    Html,
}

impl PlotFormat {
    /// That of a file, by its name; `None`: another.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "svg" => Some(Self::Svg),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

/// Pictures and rows of a sweep.
pub struct SweepReport<'a> {
    sweep: &'a Sweep,
    /// What is swept: a model on a cluster.
    name: String,
}

impl<'a> SweepReport<'a> {
    /// Of what was found.
    pub fn new(sweep: &'a Sweep) -> Self {
        let Question { model, cluster, .. } = &sweep.question;
        Self { sweep, name: format!("{} on {}", model.name, cluster.name) }
    }

    /// The picture as SVG.
    pub fn plot(&self) -> String {
        match &self.sweep.second {
            None => self.bars(),
            Some(second) => self.lines(second),
        }
    }

    /// The picture in a format, with `table` below it where there is room, the header first.
    pub fn picture(&self, format: PlotFormat, table: &[Vec<String>]) -> String {
        match format {
            PlotFormat::Svg => self.plot(),
            PlotFormat::Html => self.page(table),
        }
    }

    /// The picture as a page with a table below it, the header first.
    pub fn page(&self, table: &[Vec<String>]) -> String {
        drawing::page(&self.name, &self.plot(), table)
    }

    /// For comma-separated values: a header and a row for every point, with the numbers that vary, the fields of a plan, and
    /// why there is none.
    ///
    /// # Errors
    /// None for what a sweep has found.
    pub fn rows(&self) -> Result<Vec<Vec<String>>, SpecError> {
        let sweep = self.sweep;
        let columns = |point: &Point| match &point.best {
            Ok(best) => columns(&point.question, &point.question.setting()?, best),
            Err(_) => Ok(Vec::new()),
        };
        let priced = sweep.points.iter().map(columns).collect::<Result<Vec<_>, SpecError>>()?;
        // Layouts with SUMMA have a field more.
        let mut names: Vec<String> = Vec::new();
        for (name, _) in priced.iter().flatten() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let variables = sweep.variables().map(|variable| format!("vary_{variable}"));
        let header =
            variables.chain(names.iter().cloned()).chain(["stopped".to_owned(), "reason".to_owned()]).collect();
        let row = |(point, columns): (&Point, &Vec<(String, String)>)| {
            let cell = |name: &String| {
                columns.iter().find(|(known, _)| known == name).map_or_else(String::new, |(_, value)| value.clone())
            };
            let values = point.values.iter().take(sweep.variables().count()).map(ToString::to_string);
            let reason = point.best.as_ref().err().map_or_else(String::new, ToString::to_string);
            values.chain(names.iter().map(cell)).chain([point.stopped.to_string(), reason]).collect()
        };
        Ok(std::iter::once(header).chain(sweep.points.iter().zip(&priced).map(row)).collect())
    }

    fn title(&self) -> String {
        let second = self.sweep.second.as_ref().map_or(String::new(), |second| format!(" and {second}"));
        format!("{}, best layouts by {}{second}", self.name, self.sweep.first)
    }

    /// A bar for every value: the share of each part of the best layout's step, and above it the step's time.
    fn bars(&self) -> String {
        let [left, top, right, bottom] = MARGINS;
        let step = (900.0 / self.sweep.points.len() as f64).clamp(24.0, 110.0);
        let width = left + right + step * self.sweep.points.len() as f64;
        let height = HEIGHT - top - bottom;
        let mut drawing = Drawing::new(width, HEIGHT);
        drawing.text(left, 20.0, Anchor::Start, 15.0, &self.title());
        for percent in [0, 25, 50, 75, 100] {
            let y = FLOOR - height * f64::from(percent) / 100.0;
            drawing.text(left - 8.0, y + 4.0, Anchor::End, FONT, &format!("{percent}%"));
            drawing.line(&level(left, width - right, y), "#dddddd", 1.0);
        }
        for (index, point) in self.sweep.points.iter().enumerate() {
            let (x, bar) = (left + step * (index as f64 + 0.15), 0.7 * step);
            let middle = x + bar / 2.0;
            drawing.text(middle, FLOOR + 18.0, Anchor::Middle, FONT, &short(point.values[0]));
            match &point.best {
                Err(_) => drawing.text(middle, FLOOR - 6.0, Anchor::Middle, FONT, "none"),
                Ok(best) => {
                    drawing.text(middle, top - 6.0, Anchor::Middle, FONT, &seconds(best.price.seconds));
                    stack(&mut drawing, best, [x, bar, height]);
                }
            }
        }
        let below = format!("{}; above the bars the time of a step", self.sweep.first);
        drawing.text(left, FLOOR + 42.0, Anchor::Start, FONT, &below);
        self.legend_of_parts(&mut drawing, width - right + 16.0, top);
        drawing.finish()
    }

    fn legend_of_parts(&self, drawing: &mut Drawing, x: f64, top: f64) {
        let priced = || self.sweep.points.iter().filter_map(|point| point.best.as_ref().ok());
        let present = |part: &Part| priced().any(|ranked| part.of(&ranked.price.parts) > 0.0);
        let shown = Part::ALL.iter().zip(COLOURS).filter(|(part, _)| present(part));
        drawing.legend(x, top, FONT, shown.map(|(part, colour)| (colour, part.name())));
    }

    /// Days of training (or seconds of a step where the tokens are not known) over the first variable, or over the number
    /// of devices if that varies, a line for every value of the other; both axes logarithmic.
    fn lines(&self, second: &Variable) -> String {
        let [left, top, right, _] = MARGINS;
        let width = left + ACROSS + right;
        let first = &self.sweep.first;
        let along_first = second.is_devices() && !first.is_devices();
        let (across, along) = if along_first { (second, first) } else { (first, second) };
        let places = if along_first { [1, 0] } else { [0, 1] };
        let mut drawing = Drawing::new(width, HEIGHT);
        drawing.text(left, 20.0, Anchor::Start, 15.0, &self.title());
        let unit = if self.sweep.question.tokens.is_some() { "days of training" } else { "seconds of a step" };
        drawing.text(left, 38.0, Anchor::Start, FONT, &format!("{unit} over {across}"));
        let heights =
            || self.sweep.points.iter().filter_map(|point| Some(self.height(point, point.best.as_ref().ok()?)));
        let x_axis = Scale::of(across.values().iter().copied());
        let x_of = |value: f64| left + ACROSS * x_axis.along(value);
        for value in across.values() {
            drawing.text(x_of(*value), FLOOR + 18.0, Anchor::Middle, FONT, &short(*value));
        }
        if heights().next().is_none() {
            drawing.text(left + ACROSS / 2.0, FLOOR - 100.0, Anchor::Middle, FONT, "no layout fits anywhere");
            return drawing.finish();
        }
        let y_axis = Scale::of(heights());
        let y_of = |value: f64| FLOOR - (FLOOR - top - 10.0) * y_axis.along(value);
        for value in y_axis.quarters() {
            drawing.text(left - 8.0, y_of(value) + 4.0, Anchor::End, FONT, &significant(value));
            drawing.line(&level(left, width - right, y_of(value)), "#dddddd", 1.0);
        }
        for (index, value) in along.values().iter().enumerate() {
            let colour = COLOURS[(index * 3) % COLOURS.len()];
            let shown = |point: &Point| {
                let best = point.best.as_ref().ok()?;
                let height = self.height(point, best);
                let title = format!("{}: {}", significant(height), sizes(best.candidate.sizes));
                Some((x_of(point.values[places[0]]), y_of(height), title))
            };
            let points = self.sweep.points.iter().filter(|point| point.values[places[1]] == *value);
            drawing.line(&points.filter_map(shown).collect::<Vec<_>>(), colour, 2.0);
            let name = format!("{along} {}", short(*value));
            drawing.legend(width - right + 16.0, top + 20.0 * index as f64, FONT, [(colour, name.as_str())]);
        }
        drawing.finish()
    }

    /// What lines show of a point.
    fn height(&self, point: &Point, best: &Ranked) -> f64 {
        point.question.days(best).unwrap_or(best.price.seconds)
    }
}

/// The parts of a step on top of each other, in a bar that is `[left, width, height]`.
fn stack(drawing: &mut Drawing, best: &Ranked, [x, bar, height]: [f64; 3]) {
    let Ranked { candidate, price } = best;
    let mut y = FLOOR;
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

/// A logarithmic axis.
#[derive(Clone, Copy)]
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    /// From the least to the most of positive values.
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        Self { least: values.clone().fold(f64::INFINITY, f64::min), most: values.fold(0.0, f64::max) }
    }

    /// The value's place: 0 at the lower end, 1 at the upper one.
    fn along(self, value: f64) -> f64 {
        let Self { least, most } = self;
        if most > least { (value / least).ln() / (most / least).ln() } else { 0.5 }
    }

    /// Both ends and three values between them.
    fn quarters(self) -> [f64; 5] {
        let Self { least, most } = self;
        [0, 1, 2, 3, 4].map(|part| least * (most / least).powf(f64::from(part) / 4.0))
    }
}

fn level(left: f64, right: f64, y: f64) -> [(f64, f64, String); 2] {
    [(left, y, String::new()), (right, y, String::new())]
}

/// A value of a variable.
fn short(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e7 { format!("{value}") } else { format!("{value:.4e}") }
}

/// Three significant digits.
fn significant(value: f64) -> String {
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use quadrille_cost::native::Framework;
    use quadrille_plan::native::{Budget, Cancel, Nothing, Reserve, Space};
    use quadrille_spec::{Cluster, Imbalance, Model};

    use super::*;

    fn sweep(first: &str, second: Option<&str>) -> Sweep {
        let model = Model { name: "a model".to_owned(), ..Model::preset("gpt2-124m").unwrap() };
        let question = Question {
            cluster: Cluster::preset("selene").unwrap(),
            framework: Framework::MEGATRON,
            imbalance: Imbalance::EQUAL,
            devices: 4,
            global_batch: 16,
            seq_len: model.seq_len,
            model,
            space: Space::default(),
            per_node: None,
            reserve: Reserve::usual(&Framework::MEGATRON),
            tokens: None,
            price_per_hour: None,
            budget: Budget::default(),
            time_limit: None,
            cancel: Cancel::default(),
        };
        Sweep::new(question, first.parse().unwrap(), second.map(|second| second.parse().unwrap())).unwrap()
    }

    const NOTHING: Nothing = Nothing::Stopped { devices: 4 };

    #[test]
    fn bars_are_as_high_as_all_parts_together() {
        let mut sweep = sweep("gpus=2,4", None);
        sweep.points[1].best = Err(NOTHING);
        let report = SweepReport::new(&sweep);
        let svg = report.plot();
        assert!(svg.contains("a model on selene, best layouts by gpus<") && svg.contains(">none<"), "{svg}");
        let heights = svg.split("<rect ").filter(|rectangle| rectangle.contains("<title>"));
        let heights = heights.map(|rectangle| rectangle.split("height=\"").nth(1).unwrap().split('"').next().unwrap());
        let sum: f64 = heights.map(|height| height.parse::<f64>().unwrap()).sum();
        assert!((sum - 300.0).abs() < 1.0, "{sum}");
        assert!(report.page(&[vec!["gpus".to_owned()]]).contains("<th>gpus</th>"));
    }

    #[test]
    fn rows_have_the_plan_or_why_there_is_none() {
        let mut sweep = sweep("gpus=2,4", None);
        sweep.points[1].best = Err(NOTHING);
        let rows = SweepReport::new(&sweep).rows().unwrap();
        assert_eq!((rows.len(), rows[0][0].as_str(), rows[1][0].as_str()), (3, "vary_gpus", "2"));
        let last = |row: usize| rows[row].last().unwrap().as_str();
        assert_eq!((last(0), last(1), last(2)), ("reason", "", NOTHING.to_string().as_str()));
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    }

    #[test]
    fn lines_go_over_devices_whichever_number_they_are() {
        let mut sweep = sweep("nvs=4,8", Some("gpus=2,4"));
        let svg = SweepReport::new(&sweep).plot();
        assert!(svg.contains("best layouts by nvs and gpus") && svg.contains("seconds of a step over gpus"), "{svg}");
        assert_eq!((svg.matches("<circle").count(), svg.contains(">nvs 8<")), (4, true), "{svg}");
        sweep.question.tokens = Some(1e9);
        sweep.points.iter_mut().for_each(|point| point.question.tokens = Some(1e9));
        assert!(SweepReport::new(&sweep).plot().contains("days of training over gpus"));
        sweep.points.iter_mut().for_each(|point| point.best = Err(NOTHING));
        assert!(SweepReport::new(&sweep).plot().contains("no layout fits anywhere"));
    }
}
