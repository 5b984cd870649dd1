//! A simulated step as text: one line per stage, time from left to right.

use quadrille_step::schedule::Pass;

use super::{PassSpan, Simulation};

/// What the letters of a timeline mean.
const LEGEND: &str =
    "0-9 forward, a-j backward, A-J weight gradient of microbatch 0-9 (of every ten), u update, . idle";

/// Draws the pipeline in `width` columns, one line per stage, below it the length of the step and the letters' meaning.
///
/// A column shows the pass that takes most of its time, or that the stage is idle for more than half of it. Waits for
/// collectives belong to their pass.
pub fn timeline(simulation: &Simulation, width: usize) -> String {
    let width = width.max(1);
    let end = simulation.passes.iter().map(|span| span.end_s).fold(0.0, f64::max);
    let label = simulation.stages.len().saturating_sub(1).to_string().len();
    let mut stages = vec![vec![Column::default(); width]; simulation.stages.len()];
    if end > 0.0 {
        for span in &simulation.passes {
            draw(&mut stages[span.stage], span, width as f64 / end);
        }
    }
    let mut text = String::new();
    for (stage, columns) in stages.iter().enumerate() {
        let line: String = columns.iter().map(|column| column.letter()).collect();
        text += &format!("stage {stage:label$} |{line}|\n");
    }
    text + &format!("{} in {width} columns\n{LEGEND}\n", duration(end))
}

/// How much of a column's time is taken, and by what most.
#[derive(Clone, Copy, Default)]
struct Column {
    taken: f64,
    most: f64,
    letter: char,
}

impl Column {
    fn letter(self) -> char {
        if self.taken < 0.5 { '.' } else { self.letter }
    }
}

/// Adds a pass to the columns of its stage, `columns_per_second` of them.
fn draw(columns: &mut [Column], span: &PassSpan, columns_per_second: f64) {
    let (start, end) = (span.start_s * columns_per_second, span.end_s * columns_per_second);
    let last = columns.len() - 1;
    for (index, column) in columns.iter_mut().enumerate().take(end as usize + 1).skip((start as usize).min(last)) {
        let share = end.min(index as f64 + 1.0) - start.max(index as f64);
        column.taken += share;
        if share > column.most {
            (column.most, column.letter) = (share, letter(span));
        }
    }
}

fn letter(span: &PassSpan) -> char {
    let Some(action) = span.action else { return 'u' };
    let first = match action.pass {
        Pass::Forward => b'0',
        Pass::Backward => b'a',
        Pass::WeightGradient => b'A',
    };
    char::from(first + (action.microbatch % 10) as u8)
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.3} us", s * 1e6),
    }
}
