//! What a step takes at least: lower bounds of the price of a layout's program, known without making it.
//!
//! Candidates whose operations are the same but for sizes share a [`Template`]: real programs of few blocks, whose
//! operations are told as lists of distinct computations and collectives. Given a candidate's sizes, each of them is priced
//! once and the lists are walked on the streams of the simulation; more blocks follow in proportion. A pipeline of such
//! pieces takes at least the way in, all passes of its busiest stage, and the way out. Memory is what the pieces hold.
//!
//! There is no operation here: what a new one takes, it takes in these bounds.

mod holdings;
mod learned;
mod line;
mod makeups;
mod measured;
mod memory;
mod pipeline;
mod shapes;
mod sketch;
mod stalls;
mod tape;
mod template;
mod told;

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

pub use learned::Learned;
use learned::Made;
use makeups::Makeups;
use measured::Measured;
use pipeline::Pipeline;
use quadrille_spec::{Axis, EvenPieces, KeepWeights, Recompute, Zero};
use quadrille_step::StepError;
use rustc_hash::FxHashMap;
use sketch::{Sketch, alike};
use template::{Template, structure};

use super::network::{Link, Placement};
use super::{Candidate, PriceError, Problem};

/// What rounding may make of a sum of seconds in another order, relatively.
const ROUNDING: f64 = 1e-9;

/// What may be hidden better, or live at another time, relatively, where segments of recomputation have several blocks than
/// where they have one: apart from that they compute more. Taken for enough; random layouts with such segments hold it
/// (`cost/tests/native/bounds.rs`).
const SEGMENTS: f64 = 0.02;

/// The same where overlap chunks hide what others of a segment send.
const SEGMENTS_OF_CHUNKS: f64 = 0.05;

/// Templates by what their candidates have in common.
type Templates = FxHashMap<Candidate, Template>;

/// Bounds of the candidates of a problem.
#[derive(Debug)]
pub struct Bounds<'a> {
    problem: &'a Problem,
    /// Those that are in use here.
    templates: Templates,
    sketches: FxHashMap<Candidate, Sketch>,
    /// All that have been made, for others on other threads.
    made: Made,
    makeups: Arc<Makeups>,
}

/// What the pieces of layers of a candidate take at least, forward and backward. It serves candidates that differ in pipe,
/// schedule (but for one that puts weight gradients off) and chunks, and, unless gradients are sharded, in data.
#[derive(Debug, Clone)]
pub struct Pieces {
    measured: Measured,
    /// The same without recomputation, where a segment has several blocks.
    whole: Option<Measured>,
    /// What may be faster instead.
    or: Option<Measured>,
    /// Whether data and ZeRO stage were left out of account.
    of_any_data: bool,
}

impl<'a> Bounds<'a> {
    /// No candidate is known yet.
    pub fn new(problem: &'a Problem) -> Self {
        Self::knowing(problem, &Learned::default())
    }

    /// What was learned of such programs is known, and what is learned others will know.
    pub fn knowing(problem: &'a Problem, learned: &Learned) -> Self {
        Self {
            problem,
            templates: FxHashMap::default(),
            sketches: FxHashMap::default(),
            made: learned.of(problem),
            makeups: Arc::new(Makeups::of(&problem.by_work.blocks)),
        }
    }

    /// Others that know what these have learned, and learn for them.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self {
            problem: self.problem,
            templates: FxHashMap::default(),
            sketches: FxHashMap::default(),
            made: Arc::clone(&self.made),
            makeups: Arc::clone(&self.makeups),
        }
    }

    /// Seconds that a block of a legal candidate computes and stands still for a microbatch, or sends, in the mean of all blocks,
    /// forward and backward, whatever its pipe, data, schedule and ZeRO stage.
    ///
    /// # Errors
    /// A candidate that has no program.
    pub fn block_seconds(&mut self, c: &Candidate) -> Result<f64, PriceError> {
        let sketch = match self.sketches.entry(alike(c)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Sketch::new(self.problem, c)?),
        };
        sketch.seconds(self.problem, c)
    }

    /// Seconds that a step takes at least whose blocks compute for so long.
    pub fn seconds_of_blocks(&self, c: &Candidate, block_seconds: f64) -> f64 {
        let blocks = &self.problem.by_work.blocks;
        let stages = c.size(Axis::Pipe);
        // Where blocks differ, the busiest stage has no less than the mean of all stages.
        let blocks = match blocks.kinds() {
            [_] => blocks.len().div_ceil(stages) as f64,
            _ => blocks.len() as f64 / stages as f64,
        };
        c.microbatches(self.problem.global_batch) as f64 * blocks * block_seconds * (1.0 - ROUNDING)
    }

    /// Of the passes of the pieces of a legal candidate, whatever its data and ZeRO stage: without what is reduced or
    /// scattered over data, and without the sums of what is.
    ///
    /// # Errors
    /// A candidate that has no program.
    pub fn passes(&mut self, c: &Candidate) -> Result<Pieces, PriceError> {
        self.pieces_in(&Candidate { zero: Zero::Off, ..*c }, true)
    }

    /// Of the fastest passes, whatever is computed again and however long weights are kept: nothing is, and weights are
    /// gathered once. Only what has to be done again in any case (keys and values gathered over context) may be hidden better
    /// where all is.
    ///
    /// # Errors
    /// A candidate that has no program.
    pub fn fastest_passes(&mut self, c: &Candidate) -> Result<Pieces, PriceError> {
        let least = |recompute| Candidate {
            recompute,
            keep_communicated: true,
            keep_weights: KeepWeights::Step,
            zero: Zero::Off,
            ..*c
        };
        let pieces = self.pieces_in(&least(Recompute::None), true)?;
        let gathers_again = c.size(Axis::Context) > 1;
        let or = if gathers_again { Some(self.measure(&least(Recompute::Full { every: 1 }), true)?) } else { None };
        Ok(Pieces { or, ..pieces })
    }

    /// Of the pieces of a legal candidate.
    ///
    /// # Errors
    /// A candidate that has no program.
    pub fn pieces(&mut self, c: &Candidate) -> Result<Pieces, PriceError> {
        self.pieces_in(c, false)
    }

    fn pieces_in(&mut self, c: &Candidate, of_any_data: bool) -> Result<Pieces, PriceError> {
        let segments = matches!(c.recompute, Recompute::Full { every: 2.. });
        let without = Candidate { recompute: Recompute::None, keep_communicated: false, ..*c };
        let whole = if segments { Some(self.measure(&without, of_any_data)?) } else { None };
        Ok(Pieces { measured: self.measure(c, of_any_data)?, whole, or: None, of_any_data })
    }

    fn measure(&mut self, c: &Candidate, of_any_data: bool) -> Result<Measured, PriceError> {
        // What is copied takes its own time ([`Self::copies`]).
        let c = &Candidate { bucket: None, ..*c };
        // Where nothing is reduced over data, its size decides about no operation.
        let mut probed = *c;
        if of_any_data {
            probed.sizes[Axis::Data as usize] = 1;
        }
        let template = match self.templates.entry(structure(&self.problem.by_work, &probed)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let template = template(self.problem, &self.made, new.key(), &probed)?;
                new.insert(template)
            }
        };
        template.measure(self.problem, &self.makeups, c, of_any_data)
    }

    /// Seconds that a step of the candidate's program takes at least.
    pub fn seconds(&self, c: &Candidate, pieces: &Pieces) -> f64 {
        self.seconds_with(c, pieces, self.update(c, pieces))
    }

    /// Seconds and bytes of [`Bounds::pieces`], as the schedule has the passes, one by one: closer bounds that take longer to
    /// know.
    ///
    /// # Errors
    /// What the schedule cannot order.
    pub fn by_lists(&self, c: &Candidate, pieces: &Pieces) -> Result<(f64, u64), PriceError> {
        let pipeline = self.pipeline(c, &pieces.measured);
        let Some(lists) = pipeline.lists().map_err(StepError::from)? else {
            return Ok((self.seconds(c, pieces), self.bytes(c, pieces)));
        };
        let update = self.update(c, pieces);
        let mut seconds = pipeline.along(&lists).map_err(StepError::from)?.with(update);
        if let Some(or) = &pieces.or {
            let passed = self.pipeline(c, or).along(&lists).map_err(StepError::from)?;
            seconds = seconds.min(passed.with(update));
        }
        Ok((self.with_slack(c, pieces, seconds), self.bytes_with(c, pieces, Some(&lists))))
    }

    /// Of [`Bounds::passes`]: without the update.
    pub fn seconds_of_passes(&self, c: &Candidate, pieces: &Pieces) -> f64 {
        self.seconds_with(c, pieces, 0.0)
    }

    fn seconds_with(&self, c: &Candidate, pieces: &Pieces, update: f64) -> f64 {
        let seconds = |measured: &Measured| self.pipeline(c, measured).least().with(update);
        let least = pieces.or.iter().map(seconds).fold(seconds(&pieces.measured), f64::min);
        self.with_slack(c, pieces, least)
    }

    /// Seconds of a step whose passes and update take so long.
    fn with_slack(&self, c: &Candidate, pieces: &Pieces, seconds: f64) -> f64 {
        let slack = match (&pieces.whole, c.overlap_chunks) {
            (None, _) => ROUNDING,
            (Some(_), 1) => SEGMENTS,
            (Some(_), _) => SEGMENTS_OF_CHUNKS,
        };
        seconds * (1.0 - slack) + self.problem.framework.data_seconds
    }

    /// Of the first stage.
    fn update(&self, c: &Candidate, pieces: &Pieces) -> f64 {
        let stages = c.size(Axis::Pipe);
        let even = even(self.problem, c);
        let place = &pieces.measured.places[0];
        let blocks = || (0..c.chunks).map(|chunk| even.range(chunk * stages));
        let copies = match c.bucket {
            Some(_) => self.copies(c, place.elements.each_ref().map(|line| line.of_all(blocks()))),
            None => 0.0,
        };
        place.update.of_all(blocks()).max(copies)
    }

    fn pipeline(&self, c: &Candidate, measured: &Measured) -> Pipeline {
        let stages = c.size(Axis::Pipe);
        let message = match stages {
            1 => 0.0,
            _ => measured.messages as f64 * self.link(c).message_seconds(measured.message as f64),
        };
        let counts = [stages, c.chunks, c.microbatches(self.problem.global_batch)];
        Pipeline::new(c.schedule, counts, even(self.problem, c), &measured.places, message)
    }

    fn link(&self, c: &Candidate) -> Link {
        let network = &self.problem.network;
        Link::new(network, &Placement::of(network, c), c, Axis::Pipe.only())
    }
}

/// A template that others have made, or that is made now.
fn template(
    problem: &Problem,
    made: &Mutex<Templates>,
    key: &Candidate,
    c: &Candidate,
) -> Result<Template, PriceError> {
    let made = || made.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = made().get(key) {
        return Ok(known.clone());
    }
    let template = Template::new(problem, c)?;
    made().insert(*key, template.clone());
    Ok(template)
}

fn even(problem: &Problem, c: &Candidate) -> EvenPieces {
    EvenPieces::new(problem.by_work.layers(), c.size(Axis::Pipe), c.chunks)
}
