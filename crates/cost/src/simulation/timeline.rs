//! A simulated step as text: one line per stage, time from left to right. A step that is too long for its columns is drawn in
//! parts: the begin, the middle, where all repeats, and the end.

use std::ops::Range;

use quadrille_step::schedule::Pass;

use super::{PassSpan, Simulation};

/// What the letters of a timeline mean.
const LEGEND: &str =
    "0-9 forward, a-j backward, A-J weight gradient of microbatch 0-9 (of every ten)\nu update, . idle";

/// Fewest columns of the shortest forward pass in a drawing of a whole step, and those that it has in a drawing of parts.
const SHORTEST: f64 = 0.9;
const IN_PARTS: f64 = 2.0;

/// Draws the pipeline in `width` columns, one line per stage, below it the length of the step and the letters' meaning. Of stages
/// with several chunks a second line has the number of the chunk.
///
/// A column shows the pass that takes most of its time, or that the stage is idle for more than half of it. Waits for
/// collectives belong to their pass.
pub fn timeline(simulation: &Simulation, width: usize) -> String {
    let width = width.max(1);
    let end = simulation.passes.iter().map(|span| span.end_s).fold(0.0, f64::max);
    let shortest = shortest_forward(simulation);
    let parts = parts(end, width, shortest);
    let has_chunks = simulation.passes.iter().any(|span| span.action.is_some_and(|action| action.chunk > 0));
    let legend = if has_chunks { format!("{LEGEND}; below a stage its chunk") } else { LEGEND.to_owned() };
    let drawing = |part: &Range<f64>| drawing(simulation, part, width, has_chunks);
    let [whole] = parts.as_slice() else {
        let titles = ["begin", "middle, where all repeats", "end"];
        let drawn = titles.iter().zip(&parts).map(|(title, part)| {
            format!("{title}: {} to {}\n{}", duration(part.start), duration(part.end), drawing(part))
        });
        let length = format!("{} in all, in parts of {width} columns", duration(end));
        return format!(
            "{}{length}: a forward pass takes {}\n{legend}\n",
            drawn.collect::<String>(),
            duration(shortest)
        );
    };
    format!("{}{} in {width} columns\n{legend}\n", drawing(whole), duration(end))
}

/// Seconds of the shortest forward pass; 0 if none takes time.
fn shortest_forward(simulation: &Simulation) -> f64 {
    let forward = simulation.passes.iter().filter(|span| span.action.is_some_and(|each| each.pass == Pass::Forward));
    let seconds = forward.map(|span| span.end_s - span.start_s).filter(|seconds| *seconds > 0.0);
    seconds.reduce(f64::min).unwrap_or(0.0)
}

/// The whole step if its passes can be told apart in so many columns, else begin, middle and end.
fn parts(end: f64, width: usize, shortest: f64) -> Vec<Range<f64>> {
    let length = shortest * width as f64 / IN_PARTS;
    if end * SHORTEST <= shortest * width as f64 || shortest == 0.0 || 3.0 * length >= end {
        return vec![0.0..end];
    }
    let middle = (end - length) / 2.0;
    vec![0.0..length, middle..middle + length, end - length..end]
}

/// The lines of all stages over a part of the step.
fn drawing(simulation: &Simulation, part: &Range<f64>, width: usize, has_chunks: bool) -> String {
    let label = simulation.stages.len().saturating_sub(1).to_string().len();
    let mut stages = vec![vec![Column::default(); width]; simulation.stages.len()];
    if part.end > part.start {
        let scale = width as f64 / (part.end - part.start);
        for span in simulation.passes.iter().filter(|span| span.end_s > part.start && span.start_s < part.end) {
            draw(&mut stages[span.stage], span, (span.start_s - part.start) * scale, (span.end_s - part.start) * scale);
        }
    }
    let mut text = String::new();
    for (stage, columns) in stages.iter().enumerate() {
        let line = |of: fn(&Column) -> char| columns.iter().map(of).collect::<String>();
        text += &format!("stage {stage:label$} |{}|\n", line(|column| column.seen().map_or('.', letter)));
        if has_chunks {
            text += &format!(
                "{:>margin$} |{}|\n",
                "chunk",
                line(|column| column.seen().map_or(' ', chunk)),
                margin = 6 + label
            );
        }
    }
    text
}

/// How much of a column's time is taken, and by what most.
#[derive(Clone, Copy, Default)]
struct Column {
    taken: f64,
    most: f64,
    span: Option<PassSpan>,
}

impl Column {
    fn seen(&self) -> Option<PassSpan> {
        self.span.filter(|_| self.taken >= 0.5)
    }
}

/// Adds a pass to the columns of its stage, in which it begins and ends.
fn draw(columns: &mut [Column], span: &PassSpan, start: f64, end: f64) {
    let last = columns.len() - 1;
    let first = (start.max(0.0) as usize).min(last);
    let until = end.max(0.0) as usize + 1;
    for (index, column) in columns.iter_mut().enumerate().take(until).skip(first) {
        let share = end.min(index as f64 + 1.0) - start.max(index as f64);
        column.taken += share;
        if share > column.most {
            (column.most, column.span) = (share, Some(*span));
        }
    }
}

fn letter(span: PassSpan) -> char {
    let Some(action) = span.action else { return 'u' };
    let first = match action.pass {
        Pass::Forward => b'0',
        Pass::Backward => b'a',
        Pass::WeightGradient => b'A',
    };
    char::from(first + (action.microbatch % 10) as u8)
}

/// Chunks beyond 9 have letters.
fn chunk(span: PassSpan) -> char {
    span.action.map_or(' ', |action| char::from_digit((action.chunk % 36) as u32, 36).unwrap_or('+'))
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.3} us", s * 1e6),
    }
}
