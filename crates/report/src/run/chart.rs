//! Numbers over the steps of a run: axes, lines, marks, a legend. Colours are those of the page's style.

use crate::drawing::{Anchor, Drawing};

const FONT: f64 = 12.0;
/// Free space on the left, on the right and at the bottom.
const MARGINS: [f64; 3] = [66.0, 18.0, 44.0];
/// Above the axes, without and with a legend.
const TOP: [f64; 2] = [34.0, 58.0];
const GRID: &str = "var(--grid)";
/// From this ratio of the largest to the smallest value on an axis may be logarithmic.
const WIDE: f64 = 50.0;

/// A chart over steps.
pub struct Chart<'a> {
    /// What is shown, with its unit.
    pub title: &'a str,
    /// Width and height, in pixels.
    pub size: [f64; 2],
    /// The first and the last step.
    pub steps: [u64; 2],
    /// What values are shown on.
    pub axis: Axis,
    /// Curves, the first lowest.
    pub lines: Vec<Line<'a>>,
    /// Points that stand out, above all curves.
    pub marks: Vec<Marks<'a>>,
    /// A level with its name.
    pub level: Option<(f64, String)>,
}

/// What an axis of values begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// The smallest value; logarithmic where values are far apart.
    Close,
    /// Zero.
    FromZero,
}

/// A curve. Where a value is not finite it is interrupted.
pub struct Line<'a> {
    /// In the legend.
    pub name: &'a str,
    /// A colour of CSS.
    pub colour: &'a str,
    /// Steps, values, and what is shown under the pointer at a point, or nothing.
    pub points: Vec<(u64, f64, String)>,
}

/// Points that stand out. Those that are not finite lie at the upper edge.
pub struct Marks<'a> {
    /// In the legend.
    pub name: &'a str,
    /// A colour of CSS.
    pub colour: &'a str,
    /// Steps, values, and what is shown under the pointer.
    pub points: Vec<(u64, f64, String)>,
}

/// From values to heights.
#[derive(Debug, Clone, Copy)]
struct Scale {
    least: f64,
    most: f64,
    logarithmic: bool,
}

impl Chart<'_> {
    /// The chart as SVG.
    pub fn draw(&self) -> String {
        let [width, height] = self.size;
        let [left, right, bottom] = MARGINS;
        let mut drawing = Drawing::transparent(width, height);
        let scale = self.scale();
        let note = if scale.is_some_and(|scale| scale.logarithmic) { " (logarithmic)" } else { "" };
        drawing.text(left, 20.0, Anchor::Start, 15.0, &format!("{}{note}", self.title));
        let top = TOP[usize::from(self.legend(&mut drawing))];
        let (floor, end) = (height - bottom, width - right);
        let [first, last] = self.steps.map(|step| step as f64);
        let x_of = |step: u64| match last > first {
            true => left + (end - left) * (step as f64 - first) / (last - first),
            false => (left + end) / 2.0,
        };
        let Some(scale) = scale else {
            drawing.text((left + end) / 2.0, (top + floor) / 2.0, Anchor::Middle, FONT, "no finite value");
            return drawing.finish();
        };
        let y_of = |value: f64| floor - (floor - top) * scale.along(value);
        for (value, label) in scale.ticks() {
            drawing.line(&untitled([(left, y_of(value)), (end, y_of(value))]), GRID, 1.0);
            drawing.text(left - 8.0, y_of(value) + 4.0, Anchor::End, FONT, &label);
        }
        for step in step_ticks(self.steps) {
            drawing.line(&untitled([(x_of(step), floor), (x_of(step), floor + 4.0)]), "var(--faint)", 1.0);
            drawing.text(x_of(step), floor + 18.0, Anchor::Middle, FONT, &step.to_string());
        }
        drawing.text((left + end) / 2.0, height - 8.0, Anchor::Middle, FONT, "step");
        if let Some((level, _)) = self.level.as_ref().filter(|(level, _)| scale.holds(*level)) {
            drawing.line(&untitled([(left, y_of(*level)), (end, y_of(*level))]), "var(--level)", 1.5);
        }
        for line in &self.lines {
            for run in line.points.split(|(_, value, _)| !value.is_finite()).filter(|run| !run.is_empty()) {
                let at = |(step, value, title): &(u64, f64, String)| (x_of(*step), y_of(*value), title.clone());
                let points: Vec<_> = run.iter().map(at).collect();
                drawing.line(&points, line.colour, 1.6);
                if let [(x, y, title)] = points.as_slice()
                    && title.is_empty()
                {
                    // A line of one point is not seen.
                    drawing.circle([*x, *y, 2.0], line.colour, "none", "");
                }
            }
        }
        for marks in &self.marks {
            for (step, value, title) in &marks.points {
                let y = if value.is_finite() { y_of(*value) } else { top };
                drawing.circle([x_of(*step), y, 4.5], marks.colour, "var(--ground)", title);
            }
        }
        drawing.finish()
    }

    /// Draws what colours mean, if there are several; whether there were.
    fn legend(&self, drawing: &mut Drawing) -> bool {
        let level = self.level.iter().map(|(_, name)| ("var(--level)", name.as_str()));
        let lines = self.lines.iter().filter(|line| !line.points.is_empty()).map(|line| (line.colour, line.name));
        let marks = self.marks.iter().filter(|marks| !marks.points.is_empty()).map(|marks| (marks.colour, marks.name));
        let entries: Vec<_> = lines.chain(level).chain(marks).collect();
        if entries.len() < 2 {
            return false;
        }
        row_legend(drawing, MARGINS[0], 30.0, &entries);
        true
    }

    /// `None` without a finite value.
    fn scale(&self) -> Option<Scale> {
        let lines = self.lines.iter().flat_map(|line| &line.points);
        let values = || lines.clone().map(|(_, value, _)| *value).filter(|value| value.is_finite());
        let (least, most) = ends(values())?;
        if self.axis == Axis::Close && least > 0.0 && most / least > WIDE {
            return Some(Scale { least, most, logarithmic: true });
        }
        let zero = (self.axis == Axis::FromZero).then_some(0.0);
        let (least, most) = ends(values().chain(self.level.as_ref().map(|(level, _)| *level)).chain(zero))?;
        // Curves keep clear of the edges, unless they begin at 0.
        let space = if most > least { 0.05 * (most - least) } else { most.abs().max(1e-9) * 0.1 };
        let below = if self.axis == Axis::FromZero && least == 0.0 { 0.0 } else { space };
        Some(Scale { least: least - below, most: most + space, logarithmic: false })
    }
}

/// Squares with names, one beside the other.
pub fn row_legend(drawing: &mut Drawing, mut x: f64, y: f64, entries: &[(&str, &str)]) {
    for entry in entries {
        drawing.legend(x, y, FONT, [*entry]);
        x += 36.0 + 6.4 * entry.1.chars().count() as f64;
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| {
        let (least, most) = ends.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    })
}

fn untitled(points: [(f64, f64); 2]) -> [(f64, f64, String); 2] {
    points.map(|(x, y)| (x, y, String::new()))
}

impl Scale {
    /// The value's place: 0 at the lower end, 1 at the upper one.
    fn along(self, value: f64) -> f64 {
        let Self { least, most, logarithmic } = self;
        if logarithmic { (value / least).ln() / (most / least).ln() } else { (value - least) / (most - least) }
    }

    fn holds(self, value: f64) -> bool {
        (self.least..=self.most).contains(&value)
    }

    /// Values with their labels.
    fn ticks(self) -> Vec<(f64, String)> {
        if !self.logarithmic {
            let step = nice((self.most - self.least) / 8.0);
            let numbers = (self.least / step).ceil() as i64..=(self.most / step).floor() as i64;
            return numbers.map(|at| at as f64 * step).map(|value| (value, label(value, step, self.most))).collect();
        }
        let decades = self.least.log10().floor() as i32..=self.most.log10().floor() as i32;
        let count = decades.clone().count();
        let within: &[f64] = if count <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let values = decades.step_by(count.div_ceil(8)).flat_map(|decade| within.iter().map(move |of| (decade, of)));
        let values = values.map(|(decade, of)| (of * 10_f64.powi(decade), 10_f64.powi(decade)));
        values.filter(|(value, _)| self.holds(*value)).map(|(value, step)| (value, label(value, step, value))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn nice(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let of = [1.0, 2.0, 5.0].into_iter().find(|of| of * decade >= step * (1.0 - 1e-9)).unwrap_or(10.0);
    of * decade
}

/// A tick's value with as many digits as tell it from the next one; powers of ten where the largest is large or small.
fn label(value: f64, step: f64, largest: f64) -> String {
    let magnitude = |number: f64| number.abs().log10().floor() as i32;
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-2..1e6).contains(&largest.abs()) {
        let digits = (magnitude(value) - magnitude(step)).max(0) as usize;
        return format!("{value:.digits$e}");
    }
    let digits = (-magnitude(step)).max(0) as usize;
    format!("{value:.digits$}")
}

/// Round steps from the first to the last.
fn step_ticks([first, last]: [u64; 2]) -> Vec<u64> {
    let step = nice(((last - first) as f64 / 7.0).max(1.0)) as u64;
    (first.div_ceil(step)..=last / step).map(|at| at * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[f64], axis: Axis) -> Chart<'static> {
        let points = values.iter().enumerate().map(|(at, value)| (at as u64 + 1, *value, String::new())).collect();
        let lines = vec![Line { name: "loss", colour: "red", points }];
        let steps = [1, values.len() as u64];
        Chart { title: "Loss", size: [400.0, 200.0], steps, axis, lines, marks: Vec::new(), level: None }
    }

    #[test]
    fn axes_are_round() {
        assert_eq!((nice(0.13), nice(0.2), nice(7.0), nice(3e-5)), (0.2, 0.2, 10.0, 5e-5));
        assert_eq!((step_ticks([1, 1]), step_ticks([1, 20])), (vec![1], vec![5, 10, 15, 20]));
        let labels = |values: &[f64]| {
            let scale = chart(values, Axis::Close).scale().unwrap();
            (scale.logarithmic, scale.ticks().into_iter().map(|(_, label)| label).collect::<Vec<_>>())
        };
        assert_eq!(labels(&[2.0, 4.0]), (false, ["2.0", "2.5", "3.0", "3.5", "4.0"].map(str::to_owned).to_vec()));
        assert_eq!(labels(&[1.0, 100.0]), (true, ["1", "2", "5", "10", "20", "50", "100"].map(str::to_owned).to_vec()));
        assert_eq!(labels(&[1e-4, 3e-4]).1, ["1.0e-4", "1.5e-4", "2.0e-4", "2.5e-4", "3.0e-4"].map(str::to_owned));
        // A constant, and numbers that are very far apart.
        assert!(!labels(&[3.0, 3.0]).1.is_empty());
        assert!((2..=9).contains(&labels(&[1.0, 1e30]).1.len()));
    }

    #[test]
    fn curves_are_interrupted_where_they_are_no_numbers() {
        let svg = chart(&[1.0, 2.0, f64::NAN, 3.0, f64::INFINITY], Axis::FromZero).draw();
        let curves: Vec<usize> = svg
            .split("<polyline points=\"")
            .skip(1)
            .filter(|line| line.contains("stroke=\"red\""))
            .map(|line| line.split('"').next().unwrap().split(' ').count())
            .collect();
        assert_eq!((curves, svg.matches("<circle").count()), (vec![2, 1], 1));
        assert!(chart(&[f64::NAN], Axis::Close).draw().contains("no finite value"));
    }
}
