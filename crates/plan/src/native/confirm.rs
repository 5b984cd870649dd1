//! What a search has found in closed form, priced by its programs.
//!
//! The closed form says which layouts are worth a program: more of them than are wanted, because it is exact for plain
//! layouts only, and first of more memory than there is, because it may say too much. Whatever is printed has the price of
//! its program, and fits by it. A layout that the closed form takes for much too slow or large is not found.

use quadrille_cost::native::{PriceError, Problem};
use rayon::prelude::*;

use super::ranking::{Kept, Ranked};
use super::search::{Found, Search};
use super::setting::Setting;

/// So many times as many layouts are priced by their programs as are wanted, and so many more.
const WIDER: (usize, usize) = (3, 14);

/// So many layouts are priced side by side.
const PART: usize = 32;

/// What the closed form is asked to fit into, over what a layout may use: until enough fit by their programs.
const CAPACITIES: [f64; 4] = [1.5, 1.0, 0.8, 0.6];

impl Search<'_> {
    /// [`Search::run`] of a framework that runs step programs.
    pub(super) fn run_programs(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Found, PriceError> {
        let problem = self.setting.problem()?;
        let (times, more) = WIDER;
        let top = if self.top == 0 { 0 } else { self.top.saturating_mul(times).saturating_add(more) };
        let mut kept = Kept::new(self.top, self.one_per_grid, self.front);
        let mut first: Option<Found> = None;
        let fits = |ranked: &Ranked| self.setting.fits(&ranked.price);
        for factor in CAPACITIES {
            let capacity = self.setting.capacity.map(|bytes| (bytes as f64 * factor) as u64);
            let wider = Search { top, setting: Setting { capacity, ..self.setting }, ..self.clone() };
            let found = wider.run_closed(stop)?;
            let (priced, all) = self.priced_until(&problem, found.ranked.iter().chain(&found.front), stop)?;
            let all_fit = priced.iter().all(fits);
            priced.into_iter().filter(fits).for_each(|ranked| kept.offer(ranked));
            let stopped = found.stopped || !all;
            first.get_or_insert(found).stopped |= stopped;
            let (ranked, front, _) = kept.clone().into_parts();
            let enough = ranked.len() >= self.top && (!self.front || !front.is_empty());
            if enough || all_fit || stopped {
                break;
            }
        }
        let mut found = first.unwrap_or_default();
        (found.ranked, found.front, _) = kept.clone().into_parts();
        if found.ranked.is_empty() && found.front.is_empty() && !found.stopped {
            self.smallest(stop)?.into_iter().filter(fits).for_each(|one| kept.offer(one));
            (found.ranked, found.front, _) = kept.into_parts();
        }
        Ok(found)
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

    /// The same until `stop` says so, but of a first part in any case; and whether it is of all.
    fn priced_until<'a>(
        &self,
        problem: &Problem,
        found: impl Iterator<Item = &'a Ranked>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Vec<Ranked>, bool), PriceError> {
        let found: Vec<&Ranked> = found.collect();
        let mut priced = Vec::new();
        for (index, part) in found.chunks(PART).enumerate() {
            if index > 0 && stop() {
                return Ok((priced, false));
            }
            priced.extend(self.priced(problem, part.iter().copied())?);
        }
        Ok((priced, true))
    }
}
