//! The search: every configuration of a number of devices, in waves over all cores.
//!
//! Cuts are visited in a fixed order, those first of which the best is expected by a bound of a usual layout. The cuts of a
//! wave are searched side by side, each with what earlier waves found, and their results are put together in order: so
//! results and counts do not depend on the number of threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use quadrille_cost::native::{Candidate, Price, PriceError};
use quadrille_spec::{Layout, Rule, SpecError};
use rayon::prelude::*;

use super::count::{Counts, Refused, Tally};
use super::cuts::{Cut, Cuts, Place, cuts};
use super::placement::node;
use super::pool::Pool;
use super::ranking::{Kept, Ranked, comparable};
use super::setting::Setting;
use super::space::Space;
use super::survivors::{Survivors, fitting};
use super::visit::{Likely, Visit};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    /// The model, and what trains it where.
    pub setting: Setting<'a>,
    /// Devices, at least 1.
    pub devices: usize,
    /// The values that are tried of every choice; those for experts are of a model that has some.
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

impl<'a> Search<'a> {
    /// For so many of the fastest, on any grids, without a front.
    pub fn new(setting: Setting<'a>, devices: usize, space: Space, top: usize) -> Self {
        Self { setting, devices, space, top, one_per_grid: false, front: false, prune: true }
    }
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

/// Places whose usual layouts are looked at before anything else: those whose blocks alone take least.
const USUAL: usize = 512;

/// Places of which a usual layout is still looked at when the time is up and none was found that fits.
const LATE: usize = 64;

/// Likely layouts that are priced by their programs before anything else.
const FIRST: usize = 16;

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
        self.of_model().run_keeping(Kept::new(self.top, self.one_per_grid, self.front), stop).map(|(found, _)| found)
    }

    /// The layout that needs the least memory, whether or not it fits.
    ///
    /// # Errors
    /// As [`Search::run`].
    pub fn smallest(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<Ranked>, PriceError> {
        let unbounded = Self { setting: Setting { capacity: None, ..self.setting }, ..self.of_model() };
        unbounded.run_keeping(Kept::smallest(), stop).map(|(_, smallest)| smallest)
    }

    /// The same with what the space leaves to the model.
    pub(super) fn of_model(&self) -> Self {
        Self { space: self.space.clone().of_model(self.setting.model), ..self.clone() }
    }

    fn run_keeping(
        &self,
        mut kept: Kept,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Found, Option<Ranked>), PriceError> {
        let problem = self.setting.problem()?;
        problem.check_devices(self.devices)?;
        let pool = Pool::new(&problem);
        let rules = self.setting.rules();
        let mut tally = Tally::default();
        let domain = node(self.setting.cluster, self.setting.per_node, self.devices);
        let Cuts { cuts, mut stopped } = cuts(&problem, &rules, &self.space, self.devices, domain, &mut tally, stop);
        let visit = |cut: &Cut, kept: &Kept| Visit::new(self, &pool, rules, cut, kept.clone());
        let (ordered, likely) = self.likely(&cuts, &pool, |cut| visit(cut, &kept), stop)?;
        stopped |= stop();
        // Where the time is up they are all that is known, else they tell what is good.
        let first = if stopped { likely.len() } else { FIRST.min(likely.len()) };
        let likely: Vec<Candidate> = likely[..first].iter().map(|likely| likely.candidate).collect();
        let mut is_known = false;
        for part in likely.chunks(FIRST) {
            // Something that fits is looked for in any case.
            if is_known && stop() {
                break;
            }
            for ranked in fitting(part, &self.setting, &pool)? {
                is_known = true;
                kept.offer(ranked);
            }
        }
        let (mut rest, mut wave) = (ordered.as_slice(), 0);
        while !rest.is_empty() && !stopped {
            let (now, later) = rest.split_at(WAVES[wave.min(WAVES.len() - 1)].min(rest.len()));
            let run = |cut: &&Cut| pool.with(|bounds| visit(cut, &kept).run(bounds, stop));
            let parts: Vec<Visit> = now.par_iter().map(run).collect::<Result<_, _>>()?;
            let mut survivors = Survivors::default();
            for part in parts {
                tally.add(&part.tally);
                kept.add(&part.kept);
                stopped |= part.stopped;
                survivors.all.extend(part.survivors.all);
            }
            survivors.settle(0, stop, self, &pool, &mut kept, &mut tally.counts)?;
            stopped |= !survivors.all.is_empty();
            (rest, wave) = (later, wave + 1);
        }
        let (mut ranked, mut front, mut smallest) = kept.into_parts();
        // What was kept by seconds and memory is priced in full, each layout once.
        let mut found: Vec<&mut Ranked> = ranked.iter_mut().chain(&mut front).chain(&mut smallest).collect();
        let candidates: HashSet<Candidate> = found.iter().map(|ranked| ranked.candidate).collect();
        let price = |candidate: Candidate| Ok((candidate, problem.price_layout(&self.setting.layout(&candidate)?)?));
        let prices: HashMap<Candidate, Price> =
            candidates.into_par_iter().map(price).collect::<Result<_, PriceError>>()?;
        found.iter_mut().for_each(|ranked| ranked.price = prices[&ranked.candidate]);
        Ok((Found { ranked, front, counts: tally.counts, refused: tally.refused, stopped }, smallest))
    }

    /// The cuts, those first that are probably best, and the usual layouts of the places that are, likewise.
    fn likely<'a, 'b>(
        &self,
        cuts: &'a [Cut],
        pool: &Pool,
        visit: impl Fn(&Cut) -> Visit<'b> + Sync,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Vec<&'a Cut>, Vec<Likely>), PriceError> {
        let of_blocks = |cut: &'a Cut| match stop() {
            true => Ok((cut, vec![f32::INFINITY; cut.places.len()])),
            false => Ok((cut, pool.with(|bounds| visit(cut).least_of_blocks(bounds))?)),
        };
        let least: Vec<(&Cut, Vec<f32>)> = cuts.par_iter().map(of_blocks).collect::<Result<_, PriceError>>()?;
        let mut places: Vec<(f32, &Cut, &Place)> = Vec::new();
        for (cut, least) in &least {
            places.extend(cut.places.iter().zip(least).map(|(place, least)| (*least, *cut, place)));
        }
        places.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let (is_found, late) = (AtomicBool::new(false), AtomicUsize::new(0));
        let rough = |(_, cut, place): &(f32, &Cut, &Place)| {
            if stop() && (is_found.load(Relaxed) || late.fetch_add(1, Relaxed) >= LATE) {
                return Ok(None);
            }
            let likely = pool.with(|bounds| visit(&cut.at(place)).rough(bounds))?;
            is_found.fetch_or(likely.is_some(), Relaxed);
            Ok(likely)
        };
        let usual = &places[..USUAL.min(places.len())];
        let likely: Vec<_> = usual.par_iter().map(rough).collect::<Result<_, PriceError>>()?;
        let mut likely: Vec<Likely> = likely.into_iter().flatten().collect();
        likely.sort_by(|a, b| comparable(a.seconds).total_cmp(&comparable(b.seconds)));
        let of_cut = |least: &[f32]| least.iter().copied().fold(f32::INFINITY, f32::min);
        let mut ordered: Vec<(f32, &Cut)> = least.iter().map(|(cut, least)| (of_cut(least), *cut)).collect();
        ordered.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok((ordered.into_iter().map(|(_, cut)| cut).collect(), likely))
    }
}
