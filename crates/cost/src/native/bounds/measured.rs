//! What pieces of layers of given sizes take.

use std::ops::Range;
use std::sync::Arc;

use quadrille_step::StorageInfo;

use super::holdings::{Held, Life, SECTIONS};
use super::line::Line;
use super::makeups::Makeups;
use super::shapes::resize;
use super::tape::{Seconds, Tape, runs};
use super::template::{Alike, Elements, Known, Piece, Template};
use super::told::Links;
use crate::native::machine::NativeMachine;
use crate::native::{Candidate, PriceError, Problem};
use crate::simulation::Machine;

/// Most numbers of blocks that are measured.
const MOST: usize = 3;

/// What the last of these numbers is more than the one before.
fn last_step(numbers: &[f64]) -> f64 {
    match numbers {
        [.., before, last] => last - before,
        _ => 0.0,
    }
}

/// A place in the pipeline.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// Seconds of a microbatch forward, backward, and in gradients of weights that are put off.
    pub passes: [Line; 3],
    /// Seconds of the update, until it waits for other stages.
    pub update: Line,
    /// Bytes by [`Life`].
    pub lives: [Line; Life::ALL.len()],
    /// Bytes at once of what lives within passes, by pass.
    pub most: [Line; SECTIONS],
    pub most_alone: Line,
    /// By [`Elements`].
    pub elements: [Line; Elements::ALL.len()],
}

impl Place {
    /// The most bytes at once, in any pass, of what lives within passes.
    pub fn most_of(&self, blocks: Range<usize>) -> f64 {
        self.most.iter().map(|most| most.of(blocks.clone())).fold(0.0, f64::max)
    }
}

/// What pieces of a candidate's layers take.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// The first, those between, and the last; all the same where there is but one.
    pub places: [Place; 3],
    /// Bytes of a message to the next stage; there are `messages` of them.
    pub message: u64,
    pub messages: usize,
}

impl Measured {
    /// Whether blocks differ.
    pub fn is_mixed(&self) -> bool {
        self.places[0].update.is_mixed()
    }
}

impl Template {
    /// Measures the pieces of a candidate of this structure; without what a ZeRO stage may cut shorter, if for any of them.
    ///
    /// # Errors
    /// Sizes that are no grid.
    pub fn measure(
        &mut self,
        problem: &Problem,
        makeups: &Arc<Makeups>,
        c: &Candidate,
        of_any_zero: bool,
    ) -> Result<Measured, PriceError> {
        let machine = NativeMachine::of(problem, *c);
        let machine = if of_any_zero { machine.of_any_zero() } else { machine };
        let known = match self.known.take() {
            Some(known) if known.is_of(c, of_any_zero) => known,
            _ => self.size(problem, c, of_any_zero, &machine)?,
        };
        let mut links = Links::new(&machine);
        let collectives = known.transfers.iter().map(|transfer| links.seconds(transfer)).collect();
        let mut seconds = Seconds::new(&known.runs, collectives, machine.host_seconds(), self.script.flights);
        let bytes = &known.bytes;
        let alike: Vec<[Place; 3]> =
            self.script.kinds.iter().map(|alike| self.places(alike, bytes, &mut seconds)).collect();
        self.known = Some(known);
        let sends = &self.script.kinds[0].places[0][0].sends;
        Ok(Measured {
            places: of_kinds(alike, makeups, c.overlap_chunks > 1),
            message: sends.first().map_or(0, |value| self.shapes.local_bytes(*value)),
            messages: sends.len(),
        })
    }

    /// What there is of a candidate of this structure wherever its ranks lie.
    fn size(
        &mut self,
        problem: &Problem,
        c: &Candidate,
        of_any_zero: bool,
        machine: &NativeMachine,
    ) -> Result<Known, PriceError> {
        resize(&mut self.shapes, problem, c.sizes, c.microbatch)?;
        let mut computed = self.script.told.computed(&self.shapes, machine);
        if of_any_zero {
            self.script.shortened.iter().for_each(|work| computed.works[*work] = 0.0);
        }
        Ok(Known {
            sizes: c.sizes,
            microbatch: c.microbatch,
            of_any_zero,
            runs: runs(&self.script.runs.all, &computed),
            transfers: self.script.told.transfers(&self.shapes, machine),
            bytes: self.shapes.storages.iter().map(|info: &StorageInfo| info.bytes() as f64).collect(),
        })
    }

    /// Of pieces whose blocks are alike.
    fn places(&self, alike: &Alike, bytes: &[f64], seconds: &mut Seconds) -> [Place; 3] {
        let all = &alike.places;
        let between = alike.places.len() / 2;
        let mut middle = place(&all[between], 1, None, bytes, seconds);
        let mut others = [0, all.len() - 1]
            .map(|at| if at == between { middle.clone() } else { place(&all[at], 0, Some(&middle), bytes, seconds) });
        let [block, ends @ ..] = [Some(&alike.block), alike.ends.first(), alike.ends.get(between), alike.ends.last()]
            .map(|parameters| {
                Elements::ALL.map(|elements| {
                    let some = parameters.into_iter().flatten().filter(|(_, which)| *which == elements);
                    some.map(|(value, _)| self.shapes.value(*value).local_elements as f64).sum::<f64>()
                })
            });
        let [first, last] = &mut others;
        for (place, ends) in [first, &mut middle, last].into_iter().zip(ends) {
            place.elements = std::array::from_fn(|kind| Line::new(0, vec![ends[kind]], block[kind]));
        }
        let [first, last] = others;
        [first, middle, last]
    }
}

/// The places of a model whose blocks may differ, from those of models whose blocks are all of one of its kinds;
/// `interleaved`: in overlap chunks.
fn of_kinds(mut alike: Vec<[Place; 3]>, makeups: &Arc<Makeups>, interleaved: bool) -> [Place; 3] {
    if alike.len() == 1 {
        return alike.swap_remove(0);
    }
    for place in alike.iter_mut().flatten() {
        // Of all moments, where blocks differ: when the stage turns, all are in flight.
        let in_flight = place.lives[Life::InFlight as usize].more;
        place.most_alone.keep_more_below(in_flight);
        // Through blocks that do not communicate the first chunk goes ahead of the others, and the weights of all of them
        // are kept until these follow. Beside blocks that do, chunks take turns: of one block at a time it is sure.
        if interleaved {
            place.most.iter_mut().for_each(|most| most.keep_more_below(0.0));
        }
    }
    std::array::from_fn(|at| {
        let of = |line: &dyn Fn(&Place) -> &Line| {
            let lines: Vec<&Line> = alike.iter().map(|places| line(&places[at])).collect();
            Line::of_kinds(&lines, makeups)
        };
        Place {
            passes: std::array::from_fn(|pass| of(&|place| &place.passes[pass])),
            update: of(&|place| &place.update),
            lives: std::array::from_fn(|life| of(&|place| &place.lives[life])),
            most: std::array::from_fn(|section| of(&|place| &place.most[section])),
            most_alone: of(&|place| &place.most_alone),
            elements: std::array::from_fn(|kind| of(&|place| &place.elements[kind])),
        }
    })
}

/// Of pieces of `first` blocks and the next few. Those at the ends of a pipeline grow as those in its `middle` do, by no more
/// than they have grown themselves.
fn place(pieces: &[Piece], first: usize, middle: Option<&Place>, bytes: &[f64], seconds: &mut Seconds) -> Place {
    let held: Vec<Held> = pieces.iter().map(|piece| piece.holdings.held(bytes)).collect();
    let all = |of: &dyn Fn(&Held) -> f64| held.iter().map(of).collect::<Vec<f64>>();
    let line = |numbers: Vec<f64>, of_middle: &dyn Fn(&Place) -> &Line| {
        let own = last_step(&numbers);
        let more = middle.map_or(own, |middle| own.min(of_middle(middle).more));
        Line::new(first, numbers, more)
    };
    let mut walk = |tape: &dyn Fn(&Piece) -> &Tape, hosted: bool, of_middle: &dyn Fn(&Place) -> &Line| {
        line(pieces.iter().map(|piece| seconds.of(tape(piece), hosted)).collect(), of_middle)
    };
    let passes = [0, 1, 2].map(|pass| walk(&|piece| &piece.passes[pass], true, &|place| &place.passes[pass]));
    let update = walk(&|piece| &piece.update, false, &|place| &place.update);
    let lives =
        Life::ALL.map(|life| line(all(&|held| held.lives[life as usize]), &|place| &place.lives[life as usize]));
    let mut most: [Line; SECTIONS] =
        std::array::from_fn(|section| line(all(&|held| held.most[section]), &|place| &place.most[section]));
    let mut most_alone = line(all(&|held| held.most_alone), &|place| &place.most_alone);
    let in_flight = lives[Life::InFlight as usize].more;
    if middle.is_none() && pieces.len() < MOST {
        // The first neighbour may add more at a moment than the others: of those, what is kept is sure.
        most.iter_mut().for_each(|most| most.keep_more_below(0.0));
        most_alone.keep_more_below(in_flight);
    } else if most_alone.slows() {
        most_alone.keep_more_below(in_flight);
    }
    Place { passes, update, lives, most, most_alone, elements: Default::default() }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Blocks, Model};

    use super::*;

    /// Pieces whose blocks add this forward and backward.
    fn adding(forward: f64, backward: f64) -> [Place; 3] {
        let line = |more: f64| Line::new(1, vec![more, 2.0 * more, 3.0 * more], more);
        let most = [line(forward), line(backward), line(0.0), line(0.0)];
        let place = Place { most, ..Place::default() };
        [place.clone(), place.clone(), place]
    }

    /// Of a block of each kind.
    fn both(kinds: [[Place; 3]; 2], interleaved: bool) -> f64 {
        let first = Model::gpt(1, 8, 1, 8, 8).blocks.kinds()[0];
        let mut second = first;
        second.attention.heads = 2;
        let makeups = Arc::new(Makeups::of(&Blocks::new(first, [second])));
        of_kinds(kinds.to_vec(), &makeups, interleaved)[1].most_of(0..2)
    }

    #[test]
    fn what_kinds_hold_in_different_passes_they_do_not_hold_at_once() {
        assert_eq!(both([adding(8.0, 0.0), adding(5.0, 0.0)], false), 13.0);
        assert_eq!(both([adding(8.0, 0.0), adding(0.0, 5.0)], false), 8.0);
    }

    #[test]
    fn chunks_that_take_turns_hold_one_block() {
        assert_eq!(both([adding(8.0, 0.0), adding(5.0, 0.0)], true), 5.0);
    }
}
