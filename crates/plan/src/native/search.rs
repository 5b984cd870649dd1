//! The search: every configuration of a number of devices, in waves over all cores.
//!
//! Cuts are visited in a fixed order, those first whose rough price is lowest. The cuts of a wave are searched side by
//! side, each with what earlier waves found, and their results are put together in order: so results and counts do not
//! depend on the number of threads.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use quadrille_cost::native::PriceError;
use quadrille_spec::{Layout, Rule, SpecError};
use rayon::prelude::*;

use super::count::{Counts, Refused, Tally};
use super::cuts::{Cut, Cuts, cuts};
use super::placement::node;
use super::ranking::{Kept, Ranked, comparable};
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
#[derive(Debug, Clone, PartialEq, Default)]
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

/// Cuts of which a usual layout is still looked at when the time is up and none was found that fits.
const LATE: usize = 64;

/// Cuts that are searched side by side: few at first, so that the others know a good time.
const WAVES: [usize; 3] = [4, 28, 224];

impl Search<'_> {
    /// The message of the rule that a refused layout breaks.
    pub fn refusal(&self, refused: &Refused) -> Option<SpecError> {
        let Setting { model, global_batch, seq_len, .. } = self.setting;
        refused.example.request(global_batch, seq_len).and_then(|request| Layout::new(model, &request)).err()
    }

    /// Searches until everything was looked at or `stop` says so; a few usual layouts are looked at in any case.
    ///
    /// # Errors
    /// A model, cluster, batch or sequence that cannot be priced.
    pub fn run(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Found, PriceError> {
        if self.setting.framework.runs_programs() { self.run_programs(stop) } else { Ok(self.run_closed(stop)?) }
    }

    /// The same by prices in closed form.
    pub(super) fn run_closed(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Found, SpecError> {
        self.run_keeping(Kept::new(self.top, self.one_per_grid, self.front), stop).map(|(found, _)| found)
    }

    /// The layout that needs the least memory, whether or not it fits.
    ///
    /// # Errors
    /// As [`Search::run`].
    pub fn smallest(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<Ranked>, PriceError> {
        let unbounded = Self { setting: Setting { capacity: None, ..self.setting }, ..self.clone() };
        let (_, smallest) = unbounded.run_keeping(Kept::smallest(), stop)?;
        if !self.setting.framework.runs_programs() {
            return Ok(smallest);
        }
        Ok(self.priced(&self.setting.problem()?, smallest.iter())?.pop())
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
        let Cuts { cuts, mut stopped } = cuts(&rules, &self.space, self.devices, domain, &mut tally, stop);
        let visit = |cut: &Cut, kept: &Kept| Visit::new(self, &problem, rules, cut, kept.clone());
        let (is_found, late) = (AtomicBool::new(false), AtomicUsize::new(0));
        let rough = |cut: &Cut| {
            if stop() && (is_found.load(Relaxed) || late.fetch_add(1, Relaxed) >= LATE) {
                return None;
            }
            let likely = visit(cut, &kept).rough();
            is_found.fetch_or(likely.is_some(), Relaxed);
            likely
        };
        let mut ordered: Vec<(Option<Ranked>, &Cut)> = cuts.par_iter().map(|cut| (rough(cut), cut)).collect();
        let seconds = |likely: &Option<Ranked>| likely.map_or(f32::INFINITY, |likely| comparable(likely.price.seconds));
        ordered.sort_by(|(a, _), (b, _)| seconds(a).total_cmp(&seconds(b)));
        stopped |= stop();
        if stopped {
            ordered.iter().filter_map(|(likely, _)| *likely).for_each(|likely| kept.offer(likely));
        }
        let (mut rest, mut wave) = (ordered.as_slice(), 0);
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
