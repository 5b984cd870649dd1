//! What pieces of layers of given sizes take.

use quadrille_spec::{Grid, Layout};
use quadrille_step::StorageInfo;

use super::holdings::{Held, Life};
use super::tape::{Seconds, Tape};
use super::template::{Parameters, Piece, Template};
use crate::native::machine::NativeMachine;
use crate::native::{Candidate, PriceError, Problem};

/// A number for every count of blocks, from those of up to three: further ones add what the third does.
///
/// Collectives and computations follow each other on two streams, so that what a pass takes is the longest of several ways
/// through its tasks, each of which grows evenly with the blocks; and so it is with memory, the most of several moments. So
/// none adds less than those before it, once a block has others on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Line {
    /// With none, one and two blocks.
    pub few: [f64; 3],
    /// With each further block.
    pub more: f64,
}

impl Line {
    /// From the numbers of none, one, two and maybe three blocks; else the third adds what `third` makes of the second.
    fn through(numbers: &[f64], third: impl Fn(f64) -> f64) -> Self {
        match *numbers {
            [none, one, two, three] => Self { few: [none, one, two], more: three - two },
            [none, one, two] => Self { few: [none, one, two], more: third(two - one) },
            _ => Self::default(),
        }
    }

    /// With so many blocks.
    pub fn at(&self, blocks: usize) -> f64 {
        let last = self.few.len() - 1;
        self.few[blocks.min(last)] + blocks.saturating_sub(last) as f64 * self.more
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
#[derive(Debug, Clone, Copy, Default)]
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
    /// Measures the pieces of a candidate of this structure.
    ///
    /// # Errors
    /// Sizes that are no grid.
    pub fn measure(&mut self, problem: &Problem, c: &Candidate) -> Result<Measured, PriceError> {
        let layout =
            Layout { grid: Grid::of_sizes(c.sizes)?, microbatch: c.microbatch, ..self.shapes.program.layout.clone() };
        self.shapes.program.resize(&layout);
        let (works, collectives) = self.pieces.told.seconds(&self.shapes.program, &NativeMachine::of(problem, *c));
        let runs = self.pieces.runs.all.iter().map(|run| run.iter().map(|work| works[*work]).sum()).collect();
        let mut seconds = Seconds::new(runs, collectives, self.pieces.flights);
        let bytes: Vec<f64> =
            self.shapes.program.storages.iter().map(|info: &StorageInfo| info.bytes() as f64).collect();
        let place = |pieces: &[Piece], seconds: &mut Seconds| {
            let held: Vec<Held> = pieces.iter().map(|piece| piece.holdings.held(&bytes)).collect();
            let all = |of: &dyn Fn(&Held) -> f64| held.iter().map(of).collect::<Vec<f64>>();
            let line = |of: &dyn Fn(&Held) -> f64| Line::through(&all(of), |second| second);
            // The first neighbour may add more at a moment than the others: what is kept, they add.
            let kept = line(&|held| held.lives[Life::InFlight as usize]).more;
            let mut walk = |tape: &dyn Fn(&Piece) -> &Tape| {
                Line::through(&pieces.iter().map(|piece| seconds.of(tape(piece))).collect::<Vec<f64>>(), |second| {
                    second
                })
            };
            Place {
                passes: [0, 1, 2].map(|pass| walk(&|piece| &piece.passes[pass])),
                update: walk(&|piece| &piece.update),
                lives: Life::ALL.map(|life| line(&|held| held.lives[life as usize])),
                most: Line::through(&all(&|held| held.most), |_| 0.0),
                most_alone: Line::through(&all(&|held| held.most_alone), |second| second.min(kept)),
            }
        };
        let places: Vec<Place> = self.pieces.places.iter().map(|pieces| place(pieces, &mut seconds)).collect();
        let [.., last] = places[..] else { return Ok(Measured::default()) };
        let elements = |parameters: &Parameters| {
            let sum = |of_products: bool| {
                let some = parameters.iter().filter(|(_, by_product)| *by_product == of_products);
                some.map(|(value, _)| self.shapes.program.value(*value).local_elements as f64).sum()
            };
            Elements { of_products: sum(true), others: sum(false) }
        };
        let mut ends = [Elements::default(); 3];
        self.pieces.ends.iter().zip(&mut ends).for_each(|(parameters, end)| *end = elements(parameters));
        let sends = &self.pieces.places[0][1].sends;
        Ok(Measured {
            places: [places[0], places[1.min(places.len() - 1)], last],
            message: sends.first().map_or(0, |value| self.shapes.program.local_bytes(*value)),
            messages: sends.len(),
            block: elements(&self.pieces.block),
            ends,
        })
    }
}
