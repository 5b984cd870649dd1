//! The search of one cut by bounds: what they leave is priced by its programs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quadrille_cost::native::{Bounds, Candidate, Pieces, PriceError};
use quadrille_spec::{Axis, KeepWeights, Schedule, Zero};

use super::count::Counts;
use super::ranking::Kept;
use super::search::Search;
use super::survivors::Survivor;
use super::visit::{Open, Visit};

/// Beyond so many layouts that may be kept, some are priced at once, to know better which.
const MOST_OPEN: usize = 256;

/// What serves all candidates of a cut that share the sizes of a block.
#[derive(Default)]
struct Bases {
    /// By whether there is a pipeline, and whether weight gradients are put off.
    passes: BTreeMap<(bool, bool), Pieces>,
    /// Seconds of a block.
    block: Option<f64>,
    /// Whether it is open what is computed again.
    any: bool,
}

impl Bases {
    fn of(&mut self, bounds: &mut Bounds, plain: &Candidate) -> Result<&Pieces, PriceError> {
        let puts_off = plain.schedule == Schedule::ZeroBubble;
        Ok(match self.passes.entry((plain.size(Axis::Pipe) > 1, puts_off)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(if self.any { bounds.fastest_passes(plain)? } else { bounds.passes(plain)? })
            }
        })
    }

    /// Seconds that a step takes at least for what its blocks compute or send.
    fn of_blocks(&mut self, bounds: &mut Bounds, plain: &Candidate) -> Result<f64, PriceError> {
        let block = match self.block {
            Some(known) => known,
            None => *self.block.insert(bounds.block_seconds(plain)?),
        };
        Ok(bounds.seconds_of_blocks(plain, block))
    }
}

impl Visit<'_> {
    /// Leaves of `open` what may be kept whatever else is chosen: nothing is computed again, and weights are gathered once.
    pub(super) fn open_by_bounds(
        &mut self,
        pass: &Candidate,
        open: &mut Vec<Open>,
        bounds: &mut Bounds,
    ) -> Result<(), PriceError> {
        let mut bases = Bases { any: true, ..Bases::default() };
        let mut left = Vec::new();
        self.looks += open.len() as u64;
        for each in open.drain(..) {
            // What is communicated is kept: a framework may gather inputs again where it is not.
            let keep_communicated = true;
            let fastest = Candidate { keep_weights: KeepWeights::Step, zero: Zero::Off, keep_communicated, ..*pass };
            let plain = each.placed(&fastest, &self.ends);
            let simplest = each.placed(pass, &self.ends);
            let (end, pipeline) = each.of(&self.ends);
            let is_worthless = |seconds| self.kept.is_worthless(&simplest, seconds, end.least_bytes);
            // Bounds of what is too complex need not be known.
            let mut worthless = is_worthless(0.0) || is_worthless(bases.of_blocks(bounds, &plain)?);
            if !worthless {
                let base = bases.of(bounds, &plain)?;
                worthless = is_worthless(bounds.seconds_of_passes(&plain, base));
            }
            if worthless {
                let configurations = pipeline.recompute.len() * self.keep_weights.len() * end.zero.len();
                self.tally.counts.too_slow += configurations as u64;
            } else {
                left.push(each);
            }
        }
        *open = left;
        Ok(())
    }

    /// Everything that shares the sizes of a block: what its passes alone take rules most of it out, then the update too.
    pub(super) fn block_by_bounds(
        &mut self,
        shared: &Candidate,
        open: &[Open],
        bounds: &mut Bounds,
    ) -> Result<(), PriceError> {
        let mut bases = Bases::default();
        for open in open {
            let (_, pipeline) = open.of(&self.ends);
            if pipeline.recompute.contains(&(shared.recompute, shared.keep_communicated)) {
                self.end_by_bounds(shared, *open, bounds, &mut bases)?;
            }
        }
        self.settle_some()
    }

    /// Every ZeRO stage of what shares the sizes of a block.
    fn end_by_bounds(
        &mut self,
        shared: &Candidate,
        open: Open,
        bounds: &mut Bounds,
        bases: &mut Bases,
    ) -> Result<(), PriceError> {
        let Self { search, ends, tally, kept, survivors, is_rough, looks, .. } = self;
        *looks += 1;
        let (end, _) = open.of(ends);
        let counts = &mut tally.counts;
        let plain = Candidate { zero: Zero::Off, ..open.placed(shared, ends) };
        let is_worthless = |seconds| search.prune && kept.is_worthless(&plain, seconds, end.least_bytes);
        if is_worthless(0.0) || is_worthless(bases.of_blocks(bounds, &plain)?) {
            counts.too_slow += end.zero.len() as u64;
            return Ok(());
        }
        let base = bases.of(bounds, &plain)?;
        let seconds = bounds.seconds_of_passes(&plain, base);
        for (zero, least_bytes) in &end.zero {
            let candidate = Candidate { zero: *zero, ..plain };
            let mut survivor = Survivor { candidate, seconds, bytes: *least_bytes };
            if !is_left(search, kept, counts, &survivor) {
                continue;
            }
            survivor.bytes = bounds.bytes(&candidate, base);
            if !is_left(search, kept, counts, &survivor) {
                continue;
            }
            if !*is_rough {
                *looks += 1;
                let pieces = bounds.pieces(&candidate)?;
                (survivor.seconds, survivor.bytes) =
                    (bounds.seconds(&candidate, &pieces), bounds.bytes(&candidate, &pieces));
                if !is_left(search, kept, counts, &survivor) {
                    continue;
                }
            }
            survivors.all.push(survivor);
        }
        Ok(())
    }

    fn settle_some(&mut self) -> Result<(), PriceError> {
        if self.survivors.all.len() <= MOST_OPEN || self.is_rough {
            return Ok(());
        }
        let left = if self.search.prune { MOST_OPEN / 2 } else { 0 };
        let Self { search, pool, kept, tally, survivors, looks, allowed, .. } = self;
        *looks += survivors.settle(left, allowed.saturating_sub(*looks), search, pool, kept, &mut tally.counts)?;
        Ok(())
    }
}

/// Whether a layout of such bounds may be kept; it is counted if not.
pub(super) fn is_left(search: &Search, kept: &Kept, counts: &mut Counts, survivor: &Survivor) -> bool {
    let Survivor { candidate, seconds, bytes } = survivor;
    if !search.prune {
        return true;
    }
    if search.setting.capacity.is_some_and(|capacity| *bytes > capacity) {
        counts.too_large += 1;
        return false;
    }
    let worthless = kept.is_worthless(candidate, *seconds, *bytes);
    counts.too_slow += u64::from(worthless);
    !worthless
}
