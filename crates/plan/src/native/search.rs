//! The search: every configuration of a number of devices, in waves over all cores.
//!
//! Cuts are visited in a fixed order, those first of which the best is expected by a bound of a usual layout. The cuts of a
//! wave are searched side by side, each with what earlier waves found, and their results are put together in order: so
//! results and counts do not depend on the number of threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use quadrille_cost::native::{Candidate, Price, PriceError};
use quadrille_cost::simulation::SimulationError;
use quadrille_spec::{Axis, Rule};
use rayon::prelude::*;

use super::budget::Deadline;
use super::count::{Counts, Refused, Tally};
use super::cuts::{Cut, Cuts, Outer, Place, cuts};
use super::front::grain;
use super::placement::domain;
use super::pool::Pool;
use super::question::Cancel;
use super::ranking::{Kept, Ranked, comparable};
use super::setting::Setting;
use super::simplicity::{Complexity, Simplest};
use super::space::Space;
use super::survivors::{Detail, Survivors, fitting, is_pending};
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
    /// Whether the front of time against memory is wanted, which tells memory apart by a 32nd of what a device has for layouts.
    pub front: bool,
    /// Beside them the simplest is wanted of those that are slower than the fastest by at most this fraction of its time;
    /// `None`: it is not.
    pub tolerance: Option<f64>,
    /// Bytes within which layouts are safe: the fastest of at most so many is wanted beside the others, and the simplest is one of
    /// these if there are any; `None`: all are alike.
    pub safe_capacity: Option<u64>,
    /// By when that one trains, if any is to.
    pub deadline: Option<Deadline>,
    /// Whether the three fastest are enough where the search is stopped.
    pub brief: bool,
    /// Is told how far the search is, and says whether nobody waits for it.
    pub watch: Cancel,
    /// Whether configurations are left out that cannot be among the wanted. Results are the same without.
    pub prune: bool,
}

impl<'a> Search<'a> {
    /// For so many of the fastest, on any grids, without a front or the simplest.
    pub fn new(setting: Setting<'a>, devices: usize, space: Space, top: usize) -> Self {
        Self {
            setting,
            devices,
            space,
            top,
            one_per_grid: false,
            front: false,
            tolerance: None,
            safe_capacity: None,
            deadline: None,
            brief: false,
            watch: Cancel::default(),
            prune: true,
        }
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// The fastest that fit, fastest first.
    pub ranked: Vec<Ranked>,
    /// Those than which none that fits is both faster and smaller by whole grains of memory, fastest first; empty unless it was
    /// wanted.
    pub front: Vec<Ranked>,
    /// The simplest of those that are hardly slower than the fastest, which may be the fastest; `None` where it was not wanted,
    /// or nothing fits.
    pub simplest: Option<Ranked>,
    /// The fastest of those that take at most as many bytes as are safe; `None` where that was not wanted, or there is none.
    pub safe: Option<Ranked>,
    /// What was looked at for all but the simplest.
    pub counts: Counts,
    /// What each rule refused.
    pub refused: BTreeMap<Rule, Refused>,
    /// Whether the search was stopped before it had looked at everything.
    pub stopped: bool,
    /// Layouts that a search which was stopped has found and left out, for their steps are so large that a price takes seconds.
    pub too_long: usize,
}

/// Places whose usual layouts are looked at before anything else: those whose blocks alone take least.
const USUAL: usize = 512;

/// Places of which a usual layout is still looked at when the time is up and none was found that fits.
const LATE: usize = 64;

/// Likely layouts that are priced by their programs before anything else.
const FIRST: usize = 16;

/// Layouts of a brief search that was stopped.
const BRIEF: usize = 3;

/// Passes of a step that takes long to price. A price simulates them twice, by times alone: a core takes about a second for that.
const LONG: usize = 1 << 20;

/// So many passes take as long as the operations of a block do which a price makes.
const BLOCK: usize = 128;

/// Cuts that are searched side by side: few at first, so that the others know a good time.
const WAVES: [usize; 3] = [4, 28, 224];

/// Cuts with the least seconds of their blocks, which is smaller of those that come first.
type Ordered<'a> = Vec<(f32, &'a Cut)>;

impl Search<'_> {
    /// Searches until everything was looked at, `stop` says so or it is cancelled; a few usual layouts are looked at unless it is.
    ///
    /// # Errors
    /// A model, cluster, batch or sequence that cannot be priced.
    pub fn run(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Found, PriceError> {
        let front = self.front.then(|| grain(self.setting.capacity));
        let kept = Kept::new(self.top, self.one_per_grid, front, self.safe_capacity);
        self.of_model().run_keeping(kept, stop).map(|(found, _)| found)
    }

    /// The layout that needs the least memory, whether or not it fits.
    ///
    /// # Errors
    /// As [`Search::run`].
    pub fn smallest(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<Ranked>, PriceError> {
        let unbounded = Self { setting: Setting { capacity: None, ..self.setting }, ..self.of_model() };
        unbounded.run_keeping(Kept::smallest(), stop).map(|(_, smallest)| smallest)
    }

    /// The same with what the space leaves to the model and to what trains it.
    pub(super) fn of_model(&self) -> Self {
        let Setting { model, framework, .. } = &self.setting;
        let mut space = self.space.clone().of_model(model);
        if model.patch_values.is_none() {
            space.vocab_multiple.get_or_insert(framework.vocab_multiple);
        }
        Self { space, ..self.clone() }
    }

    fn run_keeping(
        &self,
        mut kept: Kept,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Found, Option<Ranked>), PriceError> {
        let problem = self.setting.problem()?;
        problem.check_devices(self.devices)?;
        let pool = Pool::new(&problem, self.setting.learned);
        let rules = self.setting.rules();
        let mut tally = Tally::default();
        let domain = domain(self.setting.cluster, self.setting.per_node, self.devices);
        let Cuts { cuts, mut stopped } = cuts(&problem, &rules, &self.space, self.devices, domain, &mut tally, stop);
        let visit = |cut: &Cut| Visit::new(self, &pool, rules, cut, kept.clone());
        let (ordered, likely) = self.likely(&cuts, &pool, visit, stop)?;
        stopped |= self.watch.is_cancelled() || stop();
        // Where the time is up they are all that is known, else they tell what is good.
        let first = if stopped { likely.len() } else { FIRST.min(likely.len()) };
        let likely: Vec<Candidate> = likely[..first].iter().map(|likely| likely.candidate).collect();
        let is_known = AtomicBool::new(false);
        // What will be all that is found is priced once.
        let detail = if stopped && self.brief { Detail::Whole } else { Detail::Compared };
        for part in likely.chunks(rayon::current_num_threads()) {
            // Something that fits is looked for also when the time is up, but not when nobody waits.
            let stop = || self.watch.is_cancelled() || (is_known.load(Relaxed) && stop());
            if stop() {
                break;
            }
            for ranked in fitting(part, detail, &self.setting, &pool, &stop)? {
                is_known.store(true, Relaxed);
                kept.offer(ranked);
            }
        }
        if !stopped {
            let cuts: Vec<&Cut> = ordered.iter().map(|(_, cut)| *cut).collect();
            stopped = self.visit_all(&cuts, &pool, &mut kept, &mut tally, stop)?;
        }
        let mut safe = kept.safe();
        let fastest = safe.map(|safe| safe.price.seconds).or(kept.fastest_seconds());
        let mut simplest = None;
        if let Some((tolerance, fastest)) = self.tolerance.zip(fastest) {
            let most_bytes = safe.and(self.safe_capacity);
            let limit = (1.0 + tolerance) * fastest;
            let (found, early) = self.simplest(limit, most_bytes, &ordered, &pool, stop)?;
            stopped |= early;
            simplest = found;
        }
        let (mut ranked, mut front, mut smallest) = kept.into_parts();
        let mut too_long = HashSet::new();
        if stopped {
            if self.brief {
                ranked.truncate(BRIEF);
            }
            // The time is up for prices that take long, but for those of the fastest.
            for found in [&mut ranked, &mut front] {
                let later = found.iter().skip(1).map(|ranked| ranked.candidate);
                let long: HashSet<Candidate> = later.filter(|candidate| self.is_long(candidate)).collect();
                found.retain(|ranked| !long.contains(&ranked.candidate));
                too_long.extend(long);
            }
        }
        // What was kept by seconds and memory is priced in full, each layout once.
        let found = ranked.iter_mut().chain(&mut front).chain(&mut smallest).chain(&mut simplest).chain(&mut safe);
        let mut found: Vec<&mut Ranked> = found.collect();
        too_long.retain(|candidate| found.iter().all(|ranked| ranked.candidate != *candidate));
        found.retain(|ranked| is_pending(&ranked.price));
        let candidates: HashSet<Candidate> = found.iter().map(|ranked| ranked.candidate).collect();
        let price = |candidate: Candidate| match self.watch.is_cancelled() {
            true => Err(PriceError::from(SimulationError::Stopped)),
            false => Ok((candidate, problem.price_layout(&self.setting.layout(&candidate)?)?)),
        };
        let prices: HashMap<Candidate, Price> =
            candidates.into_par_iter().map(price).collect::<Result<_, PriceError>>()?;
        found.iter_mut().for_each(|ranked| ranked.price = prices[&ranked.candidate]);
        let Tally { counts, refused, .. } = tally;
        let found = Found { ranked, front, simplest, safe, counts, refused, stopped, too_long: too_long.len() };
        Ok((found, smallest))
    }

    /// Whether a candidate's step has more passes, or its model more blocks, than are priced once nobody should wait any more.
    pub(super) fn is_long(&self, candidate: &Candidate) -> bool {
        let microbatches = candidate.microbatches(self.setting.global_batch);
        let passes = candidate.schedule.passes(candidate.size(Axis::Pipe), candidate.chunks, microbatches);
        passes.saturating_add(BLOCK * self.setting.model.layers()) >= LONG
    }

    /// Visits cuts in waves, those of one side by side, and adds what they find; whether `stop` ended it early.
    fn visit_all<'b>(
        &'b self,
        cuts: &[&Cut],
        pool: &'b Pool<'b>,
        kept: &mut Kept,
        tally: &mut Tally,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, PriceError> {
        self.watch.finds(cuts.len());
        let (mut rest, mut wave, mut stopped) = (cuts, 0, false);
        while !rest.is_empty() && !stopped {
            let (now, later) = rest.split_at(WAVES[wave.min(WAVES.len() - 1)].min(rest.len()));
            let visit = |cut: &Cut| Visit::new(self, pool, self.setting.rules(), cut, kept.clone());
            let run = |cut: &&Cut| {
                let visited = pool.with(|bounds| visit(cut).run(bounds, stop));
                self.watch.passes(1);
                visited
            };
            let parts: Vec<Visit> = now.par_iter().map(run).collect::<Result<_, _>>()?;
            let mut survivors = Survivors::default();
            for part in parts {
                tally.add(&part.tally);
                kept.add(&part.kept);
                stopped |= part.stopped || part.survivors.stopped;
                survivors.all.extend(part.survivors.all);
            }
            survivors.settle(0, stop, self, pool, kept, &mut tally.counts)?;
            stopped |= survivors.stopped || !survivors.all.is_empty();
            (rest, wave) = (later, wave + 1);
        }
        Ok(stopped)
    }

    /// The simplest layout that takes at most `limit` seconds and `most_bytes`, of what is known and of all that may be simpler;
    /// and whether `stop` said that this is enough.
    fn simplest<'b>(
        &'b self,
        limit: f64,
        most_bytes: Option<u64>,
        ordered: &[(f32, &Cut)],
        pool: &'b Pool<'b>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Option<Ranked>, bool), PriceError> {
        let layers = self.setting.model.layers();
        let mut kept = Kept::simplest(Simplest::new(limit, layers, self.deadline, most_bytes));
        pool.fitting().into_iter().for_each(|ranked| kept.offer(ranked));
        // The sizes and places alone leave little to look at.
        let mut cuts: Vec<(Complexity, Cut)> = Vec::new();
        for (least, cut) in ordered {
            let plain = |place: &Place, outer: &Outer| Candidate {
                sizes: cut.sizes_with(outer.data, outer.pipe),
                inside: place.inside_with(outer),
                ..cut.plain()
            };
            let may_be_simpler = |place: &Place, outer: &Outer| {
                !self.prune || !kept.is_worthless(&plain(place, outer), f64::from(*least), 0)
            };
            let cut = cut.retaining(may_be_simpler);
            let complexities = cut.places.iter().flat_map(|place| place.outer.iter().map(|outer| plain(place, outer)));
            let complexity = complexities.map(|plain| Complexity::of(&plain, layers)).min();
            cuts.extend(complexity.map(|complexity| (complexity, cut)));
        }
        cuts.sort_by_key(|(complexity, _)| *complexity);
        let cuts: Vec<&Cut> = cuts.iter().map(|(_, cut)| cut).collect();
        let stopped = self.visit_all(&cuts, pool, &mut kept, &mut Tally::default(), stop)?;
        let (.., simplest) = kept.into_parts();
        Ok((simplest, stopped))
    }

    /// The cuts, with the least seconds of their blocks, those first that are probably best, and the usual layouts of the places
    /// that are, likewise.
    fn likely<'a, 'b>(
        &self,
        cuts: &'a [Cut],
        pool: &Pool,
        visit: impl Fn(&Cut) -> Visit<'b> + Sync,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Ordered<'a>, Vec<Likely>), PriceError> {
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
            if self.watch.is_cancelled() || stop() && (is_found.load(Relaxed) || late.fetch_add(1, Relaxed) >= LATE) {
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
        Ok((ordered, likely))
    }
}
