//! The search: every configuration of a number of devices, in waves over all cores.
//!
//! Cuts are visited in a fixed order, those first whose rough price is lowest. The cuts of a wave are searched side by
//! side, each with what earlier waves found, and their results are put together in order: so results and counts do not
//! depend on the number of threads.

use std::collections::BTreeMap;

use quadrille_spec::{Layout, SpecError};
use rayon::prelude::*;

use super::count::{Counts, Refused, Tally};
use super::cuts::{Cut, cuts};
use super::legal::Rule;
use super::placement::node;
use super::ranking::{Kept, Ranked};
use super::setting::Setting;
use super::space::Space;
use super::visit::Visit;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    /// The model, and what trains it where.
    pub setting: Setting<'a>,
    /// Devices, at least 1.
    pub devices: usize,
    /// The values that are tried of every choice.
    pub space: Space,
    /// How many of the fastest are wanted.
    pub top: usize,
    /// Whether they are on different grids.
    pub one_per_grid: bool,
    /// Whether the front of time against memory is wanted.
    pub front: bool,
    /// Whether configurations are left out that cannot be among the wanted. Results are the same without.
    pub prune: bool,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The fastest that fit, fastest first.
    pub ranked: Vec<Ranked>,
    /// Those than which none that fits is both faster and smaller, fastest first; empty unless it was wanted.
    pub front: Vec<Ranked>,
    /// What was looked at.
    pub counts: Counts,
    /// What each rule refused.
    pub refused: BTreeMap<Rule, Refused>,
    /// Whether the search was stopped before it had looked at everything.
    pub stopped: bool,
}

/// Cuts that are searched side by side: few at first, so that the others know a good time.
const WAVES: [usize; 3] = [4, 28, 224];

impl Search<'_> {
    /// The message of the rule that a refused layout breaks.
    pub fn refusal(&self, refused: &Refused) -> Option<SpecError> {
        let Setting { model, global_batch, seq_len, .. } = self.setting;
        refused.example.request(global_batch, seq_len).and_then(|request| Layout::new(model, &request)).err()
    }

    /// Searches until everything was looked at or `stop` says so.
    ///
    /// # Errors
    /// A model, cluster, batch or sequence that cannot be priced.
    pub fn run(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Found, SpecError> {
        self.run_keeping(Kept::new(self.top, self.one_per_grid, self.front), stop).map(|(found, _)| found)
    }

    /// The layout that needs the least memory, whether or not it fits.
    ///
    /// # Errors
    /// As [`Search::run`].
    pub fn smallest(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<Ranked>, SpecError> {
        let unbounded = Self { setting: Setting { capacity: None, ..self.setting }, ..self.clone() };
        unbounded.run_keeping(Kept::smallest(), stop).map(|(_, smallest)| smallest)
    }

    fn run_keeping(
        &self,
        mut kept: Kept,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Found, Option<Ranked>), SpecError> {
        let problem = self.setting.problem()?;
        problem.check_devices(self.devices)?;
        let rules = self.setting.rules();
        let mut tally = Tally::default();
        let domain = node(self.setting.cluster, self.setting.per_node, self.devices);
        let cuts = cuts(&rules, &self.space, self.devices, domain, &mut tally);
        let visit = |cut: &Cut, kept: &Kept| Visit::new(self, &problem, rules, cut, kept.clone());
        let mut ordered: Vec<(f32, &Cut)> = cuts.par_iter().map(|cut| (visit(cut, &kept).rough(), cut)).collect();
        ordered.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (mut rest, mut wave, mut stopped) = (ordered.as_slice(), 0, false);
        while !rest.is_empty() && !stopped {
            let (now, later) = rest.split_at(WAVES[wave.min(WAVES.len() - 1)].min(rest.len()));
            let parts: Vec<_> = now.par_iter().map(|(_, cut)| visit(cut, &kept).run(stop)).collect();
            for part in parts {
                tally.add(&part.tally);
                kept.add(&part.kept);
                stopped |= part.stopped;
            }
            (rest, wave) = (later, wave + 1);
        }
        let (ranked, front, smallest) = kept.into_parts();
        Ok((Found { ranked, front, counts: tally.counts, refused: tally.refused, stopped }, smallest))
    }
}
