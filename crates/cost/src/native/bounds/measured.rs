//! What pieces of layers of given sizes take.

use quadrille_spec::{AxisSet, CollectiveKind, Grid, Layout};
use quadrille_step::{At, Collective, StorageInfo, payload_bytes};

use super::holdings::{Held, Life};
use super::tape::{Seconds, Tape};
use super::template::{Communication, PROBED, Parameters, Piece, Template};
use crate::native::machine::NativeMachine;
use crate::native::network::Link;
use crate::native::{Candidate, PriceError, Problem};

/// Bytes of a scalar that is reduced.
const SCALAR_BYTES: u64 = 8;

/// A number for every count of blocks, from those of up to three: further ones add what the third does.
///
/// Collectives and computations follow each other on two streams, so that what a pass takes is the longest of several ways
/// through its tasks, each of which grows evenly with the blocks; and so it is with memory, the most of several moments. So
/// none adds less than those before it, once a block has others on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Line {
    /// With none, one and two blocks.
    pub few: [f64; PROBED - 1],
    /// With each further block.
    pub more: f64,
}

impl Line {
    fn through([none, one, two, three]: [f64; PROBED]) -> Self {
        Self { few: [none, one, two], more: three - two }
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

/// What pieces of a candidate's layers take.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    /// The first, those between, and the last; all the same where there is but one.
    pub places: [Place; 3],
    /// Bytes of a message to the next stage; there are `messages` of them.
    pub message: u64,
    pub messages: usize,
    /// Elements of the parameters of a block, and of what the places have beside blocks; and whether products give their
    /// gradients.
    pub block: Vec<(u64, bool)>,
    pub ends: Vec<Vec<(u64, bool)>>,
}

impl Template {
    /// Measures the pieces of a candidate of this structure.
    ///
    /// # Errors
    /// Sizes that are no grid.
    pub fn measure(&mut self, problem: &Problem, c: &Candidate) -> Result<Measured, PriceError> {
        let layout = Layout { grid: Grid::of_sizes(c.sizes)?, microbatch: c.microbatch, ..self.layout() };
        self.shapes.program.resize(&layout);
        let machine = NativeMachine::of(problem, *c);
        let mut seconds = self.seconds(&machine);
        let bytes: Vec<f64> = self.shapes.program.storages.iter().map(|info: &StorageInfo| info.bytes() as f64).collect();
        let place = |pieces: &[Piece; PROBED], seconds: &mut Seconds| {
            let held = pieces.each_ref().map(|piece| piece.holdings.held(&bytes));
            let line = |of: &dyn Fn(&Held) -> f64| Line::through(held.each_ref().map(of));
            let mut walk = |tape: &dyn Fn(&Piece) -> &Tape| {
                Line::through(pieces.each_ref().map(|piece| seconds.of(tape(piece))))
            };
            Place {
                passes: [0, 1, 2].map(|pass| walk(&|piece| &piece.passes[pass])),
                update: walk(&|piece| &piece.update),
                lives: Life::ALL.map(|life| line(&|held| held.lives[life as usize])),
                most: line(&|held| held.most),
                most_alone: line(&|held| held.most_alone),
            }
        };
        let places: Vec<Place> = self.pieces.iter().map(|pieces| place(pieces, &mut seconds)).collect();
        let [.., last] = places[..] else { return Ok(Measured::default()) };
        let elements = |parameters: &Parameters| {
            let program = &self.shapes.program;
            parameters.iter().map(|(value, product)| (program.value(*value).local_elements as u64, *product)).collect()
        };
        let sends = &self.pieces[0][1].sends;
        Ok(Measured {
            places: [places[0], places[1.min(places.len() - 1)], last],
            message: sends.first().map_or(0, |value| self.shapes.program.local_bytes(*value)),
            messages: sends.len(),
            block: elements(&self.block),
            ends: self.ends.iter().map(elements).collect(),
        })
    }

    fn layout(&self) -> Layout {
        self.shapes.program.layout.clone()
    }

    /// Of everything that tapes are made of.
    fn seconds(&self, machine: &NativeMachine) -> Seconds {
        let program = &self.shapes.program;
        let at = At::first(program);
        let works: Vec<f64> = self.works.all.iter().map(|work| machine.taken(&work.work(at)).seconds()).collect();
        let mut seconds = Seconds::with_flights(self.flights);
        seconds.runs = self.runs.all.iter().map(|run| run.iter().map(|work| works[*work]).sum()).collect();
        let mut links: Vec<(AxisSet, Link)> = Vec::new();
        for communication in &self.collectives.all {
            let (kind, axes, bytes) = match communication {
                Communication::Values(collective) => {
                    (collective.kind, collective.axes, payload_bytes(program, collective))
                }
                Communication::Scalars(axes, count) => (CollectiveKind::AllReduce, *axes, *count as u64 * SCALAR_BYTES),
            };
            let known = links.iter().position(|(known, _)| *known == axes).unwrap_or_else(|| {
                links.push((axes, machine.link(axes)));
                links.len() - 1
            });
            let members = match communication {
                Communication::Values(collective) => Collective::size(collective, program.grid()),
                Communication::Scalars(..) => program.grid().size_of(axes),
            };
            seconds.collectives.push(machine.seconds_on(&links[known].1, kind, axes, members, bytes));
        }
        seconds
    }
}

