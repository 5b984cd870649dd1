//! The search: every configuration of a number of devices, in waves over all cores.
//!
//! Cuts are visited in a fixed order, those first of which the best is expected by a bound of a usual layout. The cuts of a
//! wave are searched side by side, each with what earlier waves found, and their results are put together in order: so
//! results and counts do not depend on the number of threads.

use std::collections::{BTreeMap, HashMap, HashSet};

use quadrille_cost::native::{Candidate, Price, PriceError};
use quadrille_cost::simulation::SimulationError;
use quadrille_spec::{Axis, Rule};
use rayon::prelude::*;

use super::budget::Deadline;
use super::constraint::Range;
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
    /// True if they are distinct: of each grid, and each way to spread experts over it, the best alone.
    pub distinct: bool,
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
    /// True if the three fastest are enough where the search is cut.
    pub brief: bool,
    /// Most looks at layouts after the usual ones: 1 for each bound, [`Search::looks_of_price`] for each price. A count and no
    /// time, so that a search that is cut gives the same layouts on every machine; `None`: everything is looked at.
    pub limit: Option<u64>,
    /// Reports progress, and cancels.
    pub watch: Cancel,
    /// Whether configurations are left out that cannot be among the wanted. Results are the same without.
    pub prune: bool,
}

impl<'a> Search<'a> {
    /// For so many of the fastest, several of a grid too, without a front or the simplest.
    pub fn new(setting: Setting<'a>, devices: usize, space: Space, top: usize) -> Self {
        Self {
            setting,
            devices,
            space,
            top,
            distinct: false,
            front: false,
            tolerance: None,
            safe_capacity: None,
            deadline: None,
            brief: false,
            limit: None,
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
    /// True if the search was cut, or cancelled, before it had looked at everything.
    pub stopped: bool,
    /// Layouts that a search which was cut has found and left out, for their steps are so large that a price takes seconds.
    pub too_long: usize,
    /// Looks at layouts, as [`Search::limit`] counts them, for all but the simplest.
    pub looks: u64,
}

/// Places whose usual layouts are looked at before anything else: those whose blocks alone take least.
const USUAL: usize = 512;

/// The same of a search with a limit below [`USUAL`] looks.
const FEW: usize = 64;

/// Grids, and cuts whose blocks are bounded, that a search looks at whatever its limit.
const LEAST: u64 = 1024;

/// Likely layouts that are priced by their programs before anything else.
const FIRST: usize = 16;

/// So many of them are priced side by side.
const PART: usize = 4;

/// Looks that a price counts for, and passes of a step that count for one more: a price builds a program and simulates it.
const PRICE: u64 = 64;
const PASSES: usize = 64;

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
    /// Searches until everything was looked at, the limit is reached or it is cancelled; a few usual layouts are looked at unless
    /// it is.
    ///
    /// # Errors
    /// A model, cluster, batch or sequence that cannot be priced.
    pub fn run(&self) -> Result<Found, PriceError> {
        let front = self.front.then(|| grain(self.setting.capacity));
        let kept = Kept::new(self.top, self.distinct, front, self.safe_capacity);
        self.of_model().run_keeping(kept).map(|(found, _)| found)
    }

    /// Most grids that are looked at; `None`: all.
    pub(super) fn most_grids(&self) -> Option<u64> {
        self.limit.map(|limit| limit.max(LEAST))
    }

    /// The layout that needs the least memory, whether or not it fits; `None` where there is none, or the search was cut.
    ///
    /// # Errors
    /// As [`Search::run`].
    pub fn smallest(&self) -> Result<Option<Ranked>, PriceError> {
        let unbounded = Self { setting: Setting { capacity: None, reserve: None, ..self.setting }, ..self.of_model() };
        unbounded.run_keeping(Kept::smallest()).map(|(found, smallest)| smallest.filter(|_| !found.stopped))
    }

    /// Number of legal layouts that differ from a candidate in neither sizes of axes nor the spreading of experts: its variants,
    /// with itself.
    ///
    /// # Errors
    /// A model, cluster, batch or sequence that cannot be priced.
    pub fn variants(&self, candidate: &Candidate) -> Result<u64, PriceError> {
        let mut search = self.of_model();
        search.space.axes = candidate.sizes.map(|size| Range { least: size, most: size });
        search.space.experts_over = vec![candidate.experts_over];
        let problem = self.setting.problem()?;
        let rules = self.setting.rules();
        let mut tally = Tally::default();
        let pool = Pool::new(&problem, self.setting.learned);
        let domain = domain(self.setting.cluster, self.setting.per_node, self.devices);
        let found = cuts(&problem, &rules, &search.space, self.devices, domain, &mut tally, None).cuts;
        let legal = |cut: &Cut| Visit::new(&search, &pool, rules, cut, Kept::smallest(), 0).count_legal();
        Ok(found.iter().map(legal).sum())
    }

    /// The same search for layouts of another number of devices.
    pub(super) fn with_devices(&self, devices: usize) -> Self {
        Self { devices, setting: self.setting.on_devices(devices), ..self.clone() }
    }

    /// Looks that the price of a candidate counts for.
    pub fn looks_of_price(&self, candidate: &Candidate) -> u64 {
        PRICE + (self.passes_of(candidate) / PASSES) as u64
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

    fn run_keeping(&self, mut kept: Kept) -> Result<(Found, Option<Ranked>), PriceError> {
        let problem = self.setting.problem()?;
        problem.check_devices(self.devices)?;
        let pool = Pool::new(&problem, self.setting.learned);
        let rules = self.setting.rules();
        let mut tally = Tally::default();
        let domain = domain(self.setting.cluster, self.setting.per_node, self.devices);
        let Cuts { cuts, mut stopped } =
            cuts(&problem, &rules, &self.space, self.devices, domain, &mut tally, self.most_grids());
        let visit = |cut: &Cut| Visit::new(self, &pool, rules, cut, kept.clone(), u64::MAX);
        let (ordered, likely, early) = self.likely(&cuts, &pool, visit)?;
        let is_brief = self.brief && self.limit == Some(0);
        stopped |= early || self.watch.is_cancelled();
        // Where nothing else is looked at they are all that is known, else they tell what is good.
        let first = if self.limit == Some(0) { likely.len() } else { FIRST.min(likely.len()) };
        let likely: Vec<Candidate> = likely[..first].iter().map(|likely| likely.candidate).collect();
        // What will be all that is found is priced once.
        let detail = if is_brief { Detail::Whole } else { Detail::Compared };
        let mut looks = Looks::new(self.limit);
        let mut is_known = false;
        for part in likely.chunks(PART) {
            if self.watch.is_cancelled() || self.limit == Some(0) && is_known {
                break;
            }
            for ranked in fitting(part, detail, &self.setting, &pool, &self.watch)? {
                is_known = true;
                kept.offer(ranked);
            }
        }
        let cuts: Vec<&Cut> = ordered.iter().map(|(_, cut)| *cut).collect();
        stopped |= self.visit_all(&cuts, &pool, &mut kept, &mut tally, &mut looks)?;
        let looked = looks.used;
        let mut safe = kept.safe();
        let fastest = safe.map(|safe| safe.price.seconds).or(kept.fastest_seconds());
        let mut simplest = None;
        if let Some((tolerance, fastest)) = self.tolerance.zip(fastest) {
            let most_bytes = safe.and(self.safe_capacity);
            let limit = (1.0 + tolerance) * fastest;
            let (found, early) = self.simplest(limit, most_bytes, &ordered, &pool, &mut looks)?;
            stopped |= early;
            simplest = found;
        }
        let (mut ranked, mut front, mut smallest) = kept.into_parts();
        let mut too_long = HashSet::new();
        if stopped {
            if self.brief {
                ranked.truncate(BRIEF);
            }
            // Nobody should wait for prices that take long, but for those of the fastest.
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
        let price = |candidate: Candidate| {
            if self.watch.is_cancelled() {
                Err(PriceError::from(SimulationError::Stopped))
            } else {
                Ok((candidate, problem.price_layout(&self.setting.layout(&candidate)?)?))
            }
        };
        let prices: HashMap<Candidate, Price> =
            candidates.into_par_iter().map(price).collect::<Result<_, PriceError>>()?;
        found.iter_mut().for_each(|ranked| ranked.price = prices[&ranked.candidate]);
        let Tally { counts, refused, .. } = tally;
        let too_long = too_long.len();
        let found = Found { ranked, front, simplest, safe, counts, refused, stopped, too_long, looks: looked };
        Ok((found, smallest))
    }

    /// Whether a candidate's step has more passes, or its model more blocks, than are priced once nobody should wait any more.
    pub(super) fn is_long(&self, candidate: &Candidate) -> bool {
        self.passes_of(candidate).saturating_add(BLOCK * self.setting.model.layers()) >= LONG
    }

    fn passes_of(&self, candidate: &Candidate) -> usize {
        let microbatches = candidate.microbatches(self.setting.global_batch);
        candidate.schedule.passes(candidate.size(Axis::Pipe), candidate.chunks, microbatches)
    }

    /// Visits cuts in waves, those of one side by side, and adds what they find; true if the limit, or who cancels, ended it
    /// early. The cuts of a wave have equal parts of what is left, so that none depends on when another ends.
    fn visit_all<'b>(
        &'b self,
        cuts: &[&Cut],
        pool: &'b Pool<'b>,
        kept: &mut Kept,
        tally: &mut Tally,
        looks: &mut Looks,
    ) -> Result<bool, PriceError> {
        self.watch.finds(cuts.len());
        let mut rest = cuts;
        let mut wave = 0;
        let mut stopped = false;
        while !rest.is_empty() && looks.left() > 0 && !self.watch.is_cancelled() {
            let (now, later) = rest.split_at(WAVES[wave.min(WAVES.len() - 1)].min(rest.len()));
            let each = looks.left() / now.len() as u64;
            let visit = |cut: &Cut| Visit::new(self, pool, self.setting.rules(), cut, kept.clone(), each);
            let run = |cut: &&Cut| {
                let visited = pool.with(|bounds| visit(cut).run(bounds));
                self.watch.passes(1);
                visited
            };
            let parts: Vec<Visit> = now.par_iter().map(run).collect::<Result<_, _>>()?;
            let mut survivors = Survivors::default();
            for part in parts {
                tally.add(&part.tally);
                kept.add(&part.kept);
                stopped |= part.stopped;
                looks.used += part.looks;
                survivors.all.extend(part.survivors.all);
            }
            looks.used += survivors.settle(0, looks.left(), self, pool, kept, &mut tally.counts)?;
            stopped |= self.watch.is_cancelled() || !survivors.all.is_empty();
            (rest, wave) = (later, wave + 1);
        }
        Ok(stopped || !rest.is_empty())
    }

    /// The simplest layout that takes at most `limit` seconds and `most_bytes`, of what is known and of all that may be simpler;
    /// and true if the limit, or who cancels, ended it early.
    fn simplest<'b>(
        &'b self,
        limit: f64,
        most_bytes: Option<u64>,
        ordered: &[(f32, &Cut)],
        pool: &'b Pool<'b>,
        looks: &mut Looks,
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
        let stopped = self.visit_all(&cuts, pool, &mut kept, &mut Tally::default(), looks)?;
        let (.., simplest) = kept.into_parts();
        Ok((simplest, stopped))
    }

    /// The cuts, with the least seconds of their blocks, those first that are probably best, and the usual layouts of the places
    /// that are, likewise; and true if a limit left some out.
    fn likely<'a, 'b>(
        &self,
        cuts: &'a [Cut],
        pool: &Pool,
        visit: impl Fn(&Cut) -> Visit<'b> + Sync,
    ) -> Result<(Ordered<'a>, Vec<Likely>, bool), PriceError> {
        // Of more cuts than a limit allows each so many-th is bounded, wherever it is in their order.
        let stride = self.limit.map_or(1, |limit| cuts.len().div_ceil(limit.max(LEAST) as usize)).max(1);
        let of_blocks = |(at, cut): (usize, &'a Cut)| {
            if self.watch.is_cancelled() || at % stride != 0 {
                Ok((cut, vec![f32::INFINITY; cut.places.len()]))
            } else {
                Ok((cut, pool.with(|bounds| visit(cut).least_of_blocks(bounds))?))
            }
        };
        let least: Vec<(&Cut, Vec<f32>)> =
            cuts.par_iter().enumerate().map(of_blocks).collect::<Result<_, PriceError>>()?;
        let mut places: Vec<(f32, &Cut, &Place)> = Vec::new();
        for (cut, least) in &least {
            places.extend(cut.places.iter().zip(least).map(|(place, least)| (*least, *cut, place)));
        }
        places.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let rough = |(_, cut, place): &(f32, &Cut, &Place)| {
            if self.watch.is_cancelled() { Ok(None) } else { pool.with(|bounds| visit(&cut.at(place)).rough(bounds)) }
        };
        let few = self.limit.is_some_and(|limit| limit < USUAL as u64);
        let usual = &places[..if few { FEW } else { USUAL }.min(places.len())];
        let likely: Vec<_> = usual.par_iter().map(rough).collect::<Result<_, PriceError>>()?;
        let mut likely: Vec<Likely> = likely.into_iter().flatten().collect();
        likely.sort_by(|a, b| comparable(a.seconds).total_cmp(&comparable(b.seconds)));
        let of_cut = |least: &[f32]| least.iter().copied().fold(f32::INFINITY, f32::min);
        let mut ordered: Vec<(f32, &Cut)> = least.iter().map(|(cut, least)| (of_cut(least), *cut)).collect();
        ordered.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok((ordered, likely, stride > 1))
    }
}

/// Looks of a search: those that are allowed and those that were taken.
struct Looks {
    limit: u64,
    used: u64,
}

impl Looks {
    fn new(limit: Option<u64>) -> Self {
        Self { limit: limit.unwrap_or(u64::MAX), used: 0 }
    }

    /// What is left; a search without a limit never has less than any cut takes.
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}
