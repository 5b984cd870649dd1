//! What pieces of layers of given sizes take.

use quadrille_spec::{Grid, Layout};
use quadrille_step::StorageInfo;

use super::holdings::{Held, Life};
use super::tape::{Seconds, Tape};
use super::template::{Parameters, Piece, Template};
use crate::native::machine::NativeMachine;
use crate::native::{Candidate, PriceError, Problem};

/// A number for every count of blocks, from those of a few.
///
/// Collectives and computations follow each other on streams, so that what a pass takes is the longest of several ways
/// through its tasks, each of which grows evenly with the blocks; and so it is with memory, the most of several moments. So
/// none adds less than those before it, once a block has others on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Line {
    /// Of `first` blocks and the next few.
    few: [f64; MOST],
    first: usize,
    known: usize,
    /// With each further block.
    pub more: f64,
}

/// Most numbers that are known.
const MOST: usize = 3;

impl Line {
    fn new(first: usize, numbers: &[f64], more: f64) -> Self {
        let mut few = [0.0; MOST];
        few.iter_mut().zip(numbers).for_each(|(few, number)| *few = *number);
        Self { few, first, known: numbers.len().min(MOST), more }
    }

    /// With so many blocks.
    pub fn at(&self, blocks: usize) -> f64 {
        let last = (self.first + self.known).saturating_sub(1);
        let known = blocks.min(last).saturating_sub(self.first);
        self.few[known] + blocks.saturating_sub(last) as f64 * self.more
    }
}

/// What the last of these numbers is more than the one before.
fn last_step(numbers: &[f64]) -> f64 {
    match numbers {
        [.., before, last] => last - before,
        _ => 0.0,
    }
}

/// A place in the pipeline.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// Seconds of a microbatch forward, backward, and in gradients of weights that are put off.
    pub passes: [Line; 3],
    /// Seconds of the update, until it waits for other stages.
    pub update: Line,
    /// Bytes by [`Life`].
    pub lives: [Line; Life::ALL.len()],
    pub most: Line,
    pub most_alone: Line,
}

/// Elements of parameters: of those whose gradients products give, and of the others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Elements {
    pub of_products: f64,
    pub others: f64,
}

/// What pieces of a candidate's layers take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// The first, those between, and the last; all the same where there is but one.
    pub places: [Place; 3],
    /// Bytes of a message to the next stage; there are `messages` of them.
    pub message: u64,
    pub messages: usize,
    /// Parameters of a block, and of what the places have beside blocks.
    pub block: Elements,
    pub ends: [Elements; 3],
}

impl Template {
    /// Measures the pieces of a candidate of this structure; without what a ZeRO stage may cut shorter, if for any of them.
    ///
    /// # Errors
    /// Sizes that are no grid.
    pub fn measure(&mut self, problem: &Problem, c: &Candidate, of_any_zero: bool) -> Result<Measured, PriceError> {
        let layout = Layout { grid: Grid::of_sizes(c.sizes)?, microbatch: c.microbatch, ..self.shapes.layout.clone() };
        self.shapes.resize(&layout);
        let mut priced = self.script.told.price(&self.shapes, &NativeMachine::of(problem, *c));
        if of_any_zero {
            self.script.shortened.iter().for_each(|work| priced.works[*work] = 0.0);
        }
        let mut seconds = Seconds::new(&self.script.runs.all, priced, self.script.flights);
        let bytes: Vec<f64> = self.shapes.storages.iter().map(|info: &StorageInfo| info.bytes() as f64).collect();
        let all = &self.script.places;
        let middle = place(&all[all.len() / 2], 1, None, &bytes, &mut seconds);
        let places: Vec<Place> = (0..all.len())
            .map(|at| match at == all.len() / 2 {
                true => middle,
                false => place(&all[at], 0, Some(&middle), &bytes, &mut seconds),
            })
            .collect();
        let elements = |parameters: &Parameters| {
            let sum = |of_products: bool| {
                let some = parameters.iter().filter(|(_, by_product)| *by_product == of_products);
                some.map(|(value, _)| self.shapes.value(*value).local_elements as f64).sum()
            };
            Elements { of_products: sum(true), others: sum(false) }
        };
        let mut ends = [Elements::default(); 3];
        self.script.ends.iter().zip(&mut ends).for_each(|(parameters, end)| *end = elements(parameters));
        let sends = &self.script.places[0][0].sends;
        Ok(Measured {
            places: [0, 1, 2].map(|at| places[at.min(places.len() - 1)]),
            message: sends.first().map_or(0, |value| self.shapes.local_bytes(*value)),
            messages: sends.len(),
            block: elements(&self.script.block),
            ends,
        })
    }
}

/// Of pieces of `first` blocks and the next few. Those at the ends of a pipeline grow as those in its `middle` do, by no more
/// than they have grown themselves.
fn place(pieces: &[Piece], first: usize, middle: Option<&Place>, bytes: &[f64], seconds: &mut Seconds) -> Place {
    let held: Vec<Held> = pieces.iter().map(|piece| piece.holdings.held(bytes)).collect();
    let all = |of: &dyn Fn(&Held) -> f64| held.iter().map(of).collect::<Vec<f64>>();
    let line = |numbers: &[f64], of_middle: &dyn Fn(&Place) -> Line| {
        let own = last_step(numbers);
        Line::new(first, numbers, middle.map_or(own, |middle| own.min(of_middle(middle).more)))
    };
    let mut walk = |tape: &dyn Fn(&Piece) -> &Tape, hosted: bool, of_middle: &dyn Fn(&Place) -> Line| {
        line(&pieces.iter().map(|piece| seconds.of(tape(piece), hosted)).collect::<Vec<f64>>(), of_middle)
    };
    let passes = [0, 1, 2].map(|pass| walk(&|piece| &piece.passes[pass], true, &|place| place.passes[pass]));
    let update = walk(&|piece| &piece.update, false, &|place| place.update);
    let lives =
        Life::ALL.map(|life| line(&all(&|held| held.lives[life as usize]), &|place| place.lives[life as usize]));
    let mut most = line(&all(&|held| held.most), &|place| place.most);
    let mut most_alone = line(&all(&|held| held.most_alone), &|place| place.most_alone);
    if middle.is_none() && pieces.len() < MOST {
        // The first neighbour may add more at a moment than the others: of those, what is kept is sure.
        most.more = 0.0;
        most_alone.more = most_alone.more.min(lives[Life::InFlight as usize].more);
    }
    Place { passes, update, lives, most, most_alone }
}
