//! Layouts that bounds have not ruled out, until they are priced by their programs: the most promising first, so that the
//! others need not be.

use quadrille_cost::native::{Candidate, Memory, Parts, Price, PriceError, Problem};
use rayon::prelude::*;

use super::count::Counts;
use super::ranking::{Kept, Ranked};
use super::setting::Setting;

/// So many layouts are priced side by side.
const PART: usize = 8;

/// A price of which a search knows seconds and memory only, until it knows what it has found.
const PENDING: Price =
    Price { seconds: 0.0, parts: Parts::NONE, memory: Memory::NONE, model_flops: 0.0, executed_flops: 0.0 };

/// A layout with lower bounds of its price.
#[derive(Debug, Clone, Copy)]
pub(super) struct Survivor {
    pub candidate: Candidate,
    pub seconds: f64,
    pub bytes: u64,
}

/// Those that are still to be priced.
#[derive(Debug, Default)]
pub(super) struct Survivors {
    pub all: Vec<Survivor>,
}

impl Survivors {
    /// Prices the most promising, until `stop` says so or at most `left` are left that may be kept; without `prune`, all that are too many.
    ///
    /// # Errors
    /// What cannot be priced.
    pub fn settle(
        &mut self,
        left: usize,
        prune: bool,
        stop: &(dyn Fn() -> bool + Sync),
        setting: &Setting,
        problem: &Problem,
        kept: &mut Kept,
        counts: &mut Counts,
    ) -> Result<(), PriceError> {
        // The most promising last.
        self.all.sort_by(|a, b| kept.promise(b.seconds, b.bytes).total_cmp(&kept.promise(a.seconds, a.bytes)));
        loop {
            let before = self.all.len();
            if prune {
                self.all.retain(|survivor| !kept.is_worthless(survivor.seconds, survivor.bytes));
            }
            counts.too_slow += (before - self.all.len()) as u64;
            if self.all.len() <= left || stop() {
                return Ok(());
            }
            let part = self.all.split_off(self.all.len().saturating_sub(PART));
            let price = |survivor: &Survivor| -> Result<Option<Ranked>, PriceError> {
                let candidate = survivor.candidate;
                let fits = |memory: &Memory| setting.has_room(memory);
                let outline = problem.outline(&setting.layout(&candidate)?, fits)?;
                Ok(outline.map(|(seconds, memory)| Ranked { candidate, price: Price { seconds, memory, ..PENDING } }))
            };
            let priced: Vec<Option<Ranked>> = part.par_iter().map(price).collect::<Result<_, _>>()?;
            counts.priced += priced.len() as u64;
            for ranked in priced.into_iter().rev().flatten() {
                counts.fitting += 1;
                kept.offer(ranked);
            }
        }
    }
}
