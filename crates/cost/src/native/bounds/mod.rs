//! What a step takes at least: lower bounds of the price of a layout's program, known in microseconds.
//!
//! Candidates whose operations are the same but for sizes share a [`Template`]: real programs of few blocks, whose
//! operations are told as lists of distinct computations and collectives. Given a candidate's sizes, each of them is priced
//! once and the lists are walked on two streams, as the simulation does; more blocks follow in proportion. A pipeline of such
//! pieces takes at least the way in, all passes of its busiest stage, and the way out. Memory is what the pieces hold.
//!
//! There is no operation here: what a new one takes, it takes in these bounds.

mod holdings;
mod measured;
mod memory;
mod pipeline;
mod shapes;
mod tape;
mod template;

use std::collections::HashMap;

use quadrille_spec::{Axis, EvenPieces, Recompute};

use super::network::{Link, Placement};
use super::{Candidate, PriceError, Problem};
use measured::{Measured, Place};
use pipeline::Pipeline;
use template::{Template, structure};

/// What rounding may make of a sum of seconds in another order, relatively.
const ROUNDING: f64 = 1e-9;

/// What may be hidden better, relatively, where segments of recomputation have several blocks than where they have one: apart
/// from that they compute more.
const SEGMENTS: f64 = 0.005;

/// Bounds of the candidates of a problem.
#[derive(Debug, Clone)]
pub struct Bounds<'a> {
    problem: &'a Problem,
    templates: HashMap<Candidate, Template>,
}

/// What the pieces of layers of a candidate take at least, forward and backward. It serves candidates that differ in pipe,
/// schedule (but for one that puts weight gradients off) and chunks, and, unless gradients are sharded, in data.
#[derive(Debug, Clone)]
pub struct Pieces {
    measured: Measured,
    /// The same without recomputation, where a segment has several blocks.
    whole: Option<Measured>,
}

impl<'a> Bounds<'a> {
    /// No candidate is known yet.
    pub fn new(problem: &'a Problem) -> Self {
        Self { problem, templates: HashMap::new() }
    }

    /// Of the pieces of a legal candidate.
    ///
    /// # Errors
    /// A candidate that has no program.
    pub fn pieces(&mut self, c: &Candidate) -> Result<Pieces, PriceError> {
        let segments = matches!(c.recompute, Recompute::Full { every: 2.. });
        let without = Candidate { recompute: Recompute::None, keep_communicated: false, ..*c };
        let whole = if segments { Some(self.measure(&without)?) } else { None };
        Ok(Pieces { measured: self.measure(c)?, whole })
    }

    fn measure(&mut self, c: &Candidate) -> Result<Measured, PriceError> {
        let key = structure(&self.problem.model, c);
        if !self.templates.contains_key(&key) {
            self.templates.insert(key, Template::new(self.problem, c)?);
        }
        match self.templates.get_mut(&key) {
            Some(template) => template.measure(self.problem, c),
            None => Ok(Measured::default()),
        }
    }

    /// Seconds that a step of the candidate's program takes at least.
    pub fn seconds(&self, c: &Candidate, pieces: &Pieces) -> f64 {
        let (stages, even) = (c.size(Axis::Pipe), even(self.problem, c));
        let all = stages * c.chunks;
        let seconds: Vec<[f64; 3]> = (0..all)
            .map(|piece| {
                let (place, blocks) = (pieces.place(piece, all), even.blocks_of(piece));
                place.passes.map(|pass| pass.at(blocks))
            })
            .collect();
        let measured = &pieces.measured;
        let message = if stages == 1 { 0.0 } else { measured.messages as f64 * self.link(c).message_seconds(measured.message as f64) };
        let microbatches = c.microbatches(self.problem.global_batch);
        let pipeline =
            Pipeline { schedule: c.schedule, stages, chunks: c.chunks, microbatches, pieces: &seconds, message };
        let passed = pipeline.least();
        let blocks = (0..c.chunks).map(|chunk| even.blocks_of(chunk * stages)).sum();
        let update = measured.places[0].update.at(blocks);
        let slack = if pieces.whole.is_some() { SEGMENTS } else { ROUNDING };
        (passed.first + update).max(passed.any) * (1.0 - slack)
    }

    fn link(&self, c: &Candidate) -> Link {
        let network = &self.problem.network;
        Link::new(network, &Placement::of(network, c), c, Axis::Pipe.only())
    }
}

impl Pieces {
    /// Of a piece, of so many.
    fn place(&self, piece: usize, all: usize) -> &Place {
        let places = &self.measured.places;
        match piece {
            0 => &places[0],
            piece if piece + 1 == all => &places[2],
            _ => &places[1],
        }
    }
}

fn even(problem: &Problem, c: &Candidate) -> EvenPieces {
    EvenPieces::new(problem.model.layers, c.size(Axis::Pipe), c.chunks)
}
