//! What a search has found in closed form, priced by its programs.
//!
//! The closed form says which layouts are worth a program: more of them than are wanted, because it is exact for plain
//! layouts only. Whatever is printed has the price of its program, and fits by it.

use quadrille_cost::native::{PriceError, Problem};
use rayon::prelude::*;

use super::ranking::{Kept, Ranked};
use super::search::{Found, Search};
use super::setting::Setting;

/// So many times as many layouts are priced by their programs as are wanted, and so many more.
const WIDER: (usize, usize) = (3, 14);

/// How often the closed form is asked for smaller layouts, where its own did not fit.
const TRIES: usize = 4;

impl Search<'_> {
    /// [`Search::run`] of a framework that runs step programs.
    pub(super) fn run_programs(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Found, PriceError> {
        let problem = self.setting.problem()?;
        let (times, more) = WIDER;
        let top = if self.top == 0 { 0 } else { self.top.saturating_mul(times).saturating_add(more) };
        let mut capacity = self.setting.capacity;
        let mut tries = 1;
        loop {
            let wider = Search { top, setting: Setting { capacity, ..self.setting }, ..self.clone() };
            let mut found = wider.run_closed(stop)?;
            let priced = self.priced(&problem, found.ranked.iter().chain(&found.front))?;
            let excess = self.excess(&priced);
            let mut kept = Kept::new(self.top, self.one_per_grid, self.front);
            priced.into_iter().filter(|ranked| self.fits(ranked)).for_each(|ranked| kept.offer(ranked));
            (found.ranked, found.front, _) = kept.clone().into_parts();
            let enough = found.ranked.len() >= self.top && (!self.front || !found.front.is_empty());
            if enough || found.stopped || excess <= 1.0 || tries == TRIES {
                if found.ranked.is_empty() && found.front.is_empty() && !found.stopped {
                    self.smallest(stop)?.into_iter().filter(|one| self.fits(one)).for_each(|one| kept.offer(one));
                    (found.ranked, found.front, _) = kept.into_parts();
                }
                return Ok(found);
            }
            capacity = capacity.map(|bytes| (bytes as f64 / excess) as u64);
            tries += 1;
        }
    }

    /// The layouts with the prices of their programs.
    pub(super) fn priced<'a>(
        &self,
        problem: &Problem,
        found: impl Iterator<Item = &'a Ranked>,
    ) -> Result<Vec<Ranked>, PriceError> {
        let found: Vec<&Ranked> = found.collect();
        let price = |ranked: &&Ranked| {
            let layout = self.setting.layout(&ranked.candidate)?;
            Ok(Ranked { price: problem.price_layout(&layout)?, ..**ranked })
        };
        found.par_iter().map(price).collect()
    }

    fn fits(&self, ranked: &Ranked) -> bool {
        self.setting.capacity.is_none_or(|capacity| ranked.price.memory.total() <= capacity)
    }

    /// By how much the largest of the layouts exceeds what a layout may use; at most 1 where all fit.
    fn excess(&self, priced: &[Ranked]) -> f64 {
        let most = priced.iter().map(|ranked| ranked.price.memory.total()).max().unwrap_or(0);
        self.setting.capacity.map_or(0.0, |capacity| most as f64 / capacity as f64)
    }
}
