//! The passes of a pipeline as time goes on, as many as can be looked at: of long steps the begin, a part of the middle where
//! everything repeats, and the end.

use std::ops::Range;

use quadrille_cost::simulation::{PassSpan, Simulation};
use quadrille_spec::Layout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::moves::pass_name;

/// What the entries of a pass are.
const COLUMNS: [&str; 6] = ["stage", "pass", "chunk", "microbatch", "start_s", "end_s"];

/// A drawn pass: stage, which pass, chunk, microbatch, and from when to when.
pub type Drawn = (usize, String, usize, usize, f64, f64);

/// A simulated step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Seconds from a step's end to the next one's.
    pub step_s: f64,
    /// Waiting for other stages over all else.
    pub bubble: f64,
    /// Stages.
    pub stages: usize,
    /// Pieces of layers of each.
    pub chunks: usize,
    /// Microbatches.
    pub microbatches: usize,
    /// What the entries of a pass are.
    pub columns: [String; 6],
    /// The passes within `shown`, by stage in order of time; the update has no chunk and no microbatch but 0.
    pub passes: Vec<Drawn>,
    /// Seconds that the passes are from: all, or begin, middle and end.
    pub shown: Vec<Range<f64>>,
    /// Passes of all stages that lie between.
    pub left_out: usize,
}

/// Passes of all stages above which a step is not simulated to be drawn: on 8 stages so many took 2 s of a core, 0.7 to 0.8 GB
/// with their picture.
pub const MOST_PASSES: usize = 1 << 22;

impl Timeline {
    /// Whether a step has more than [`MOST_PASSES`].
    pub fn is_long(layout: &Layout) -> bool {
        layout.passes() > MOST_PASSES
    }

    /// Of a step in so many chunks and microbatches, with at most about so many passes.
    pub fn of(simulation: &Simulation, chunks: usize, microbatches: usize, most: usize) -> Self {
        let end = simulation.passes.iter().map(|span| span.end_s).fold(0.0, f64::max);
        let shown = if simulation.passes.len() <= most {
            vec![0.0..end]
        } else {
            parts(end, end * most as f64 / simulation.passes.len() as f64 / 3.0)
        };
        let is_shown = |span: &&PassSpan| shown.iter().any(|part| span.start_s < part.end && span.end_s > part.start);
        let passes: Vec<Drawn> = simulation.passes.iter().filter(is_shown).map(drawn).collect();
        Self {
            step_s: simulation.step_seconds,
            bubble: simulation.bubble(),
            stages: simulation.stages.len(),
            chunks,
            microbatches,
            columns: COLUMNS.map(str::to_owned),
            left_out: simulation.passes.len() - passes.len(),
            passes,
            shown,
        }
    }
}

/// Begin, middle and end of so many seconds, each of a length; all, if they are most of it.
fn parts(end: f64, length: f64) -> Vec<Range<f64>> {
    if 3.0 * length >= end {
        return vec![0.0..end];
    }
    let middle = (end - length) / 2.0;
    vec![0.0..length, middle..middle + length, end - length..end]
}

/// Six digits are as many as a picture shows.
fn drawn(span: &PassSpan) -> Drawn {
    let round = |seconds: f64| format!("{seconds:.5e}").parse().unwrap_or(seconds);
    let (chunk, microbatch) = span.action.map_or((0, 0), |action| (action.chunk, action.microbatch));
    (
        span.stage,
        pass_name(span.action.map(|action| action.pass)).to_owned(),
        chunk,
        microbatch,
        round(span.start_s),
        round(span.end_s),
    )
}
