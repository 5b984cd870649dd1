//! The search of one cut: every configuration whose x, y, z, context and expert have given sizes, wherever its ranks lie.

use std::collections::BTreeMap;

use quadrille_cost::native::{AttentionKernel, Bounds, Candidate, PriceError};
use quadrille_spec::{Axis, AxisSet, EvenPieces, KeepWeights, Overlap, Recompute, Rule, Schedule, Scope, Zero};

use super::bounds::state_bytes;
use super::count::Tally;
use super::cuts::{Cut, Outer, Place};
use super::legal::Rules;
use super::pool::Pool;
use super::ranking::{Kept, comparable};
use super::search::Search;
use super::space::{Space, divisors};
use super::survivors::Survivors;

/// How many microbatches tell roughly what a cut takes.
const SMALL_MICROBATCHES: usize = 3;

/// A cut on its way through the search.
pub(super) struct Visit<'a> {
    pub search: &'a Search<'a>,
    pub pool: &'a Pool<'a>,
    rules: Rules<'a>,
    pub ends: Vec<End>,
    places: Vec<Vec<Placed>>,
    experts_over: AxisSet,
    /// Room for rows of experts; `None`: what was said is too little.
    expert_rows: Option<usize>,
    pub keep_weights: &'a [KeepWeights],
    /// What was counted.
    pub tally: Tally,
    /// The best, those of earlier visits too.
    pub kept: Kept,
    /// What may be among the best, too.
    pub survivors: Survivors,
    /// True if not everything was looked at.
    pub stopped: bool,
    /// Looks that were taken, and those that are allowed.
    pub looks: u64,
    pub allowed: u64,
    /// Whether only bounds are asked for.
    pub is_rough: bool,
}

/// An end, by its number, and where its ranks lie in a place.
#[derive(Clone, Copy)]
struct Placed {
    end: usize,
    inside: [usize; Axis::COUNT],
}

/// Sizes of data and pipe with what depends on them alone.
pub(super) struct End {
    /// Of all axes.
    sizes: [usize; Axis::COUNT],
    /// In how many places it is.
    placed: u64,
    /// Sequences of a (data, expert) rank in a step.
    share: usize,
    pipelines: Vec<Pipeline>,
    /// With a lower bound of the bytes of the rank that needs most; those that cannot fit are only counted.
    pub zero: Vec<(Zero, u64)>,
    too_large: u64,
    /// The least of the bounds.
    pub least_bytes: u64,
}

/// A layout that is probably good, with about its seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Likely {
    pub candidate: Candidate,
    pub seconds: f64,
}

/// A schedule with its pieces of layers.
pub(super) struct Pipeline {
    schedule: Schedule,
    chunks: usize,
    /// What is computed again, with whether it keeps what was communicated.
    pub recompute: Vec<(Recompute, bool)>,
    /// The same of what breaks a rule.
    refused: Vec<(Recompute, bool)>,
}

impl End {
    fn new(search: &Search, rules: &Rules, cut: &Cut, data: usize, pipe: usize) -> Self {
        let sizes = cut.sizes_with(data, pipe);
        let [x, y, z, context, expert, ..] = sizes;
        let space = &search.space;
        let layers = search.setting.model.layers();
        let pipelines = space.schedules(layers, pipe).into_iter().map(|(schedule, chunks)| {
            let blocks = EvenPieces::new(layers, pipe, chunks).most();
            let (recompute, refused) = space
                .recompute(blocks, x * y * z * context > 1 || !cut.experts_over.is_empty())
                .into_iter()
                .partition(|(recompute, keep)| rules.check_recompute(*recompute, *keep).is_ok());
            Pipeline { schedule, chunks, recompute, refused }
        });
        let bytes = |zero| {
            state_bytes(
                rules.model,
                &search.setting.framework,
                sizes,
                cut.experts_over,
                zero,
                search.space.bucket.is_none(),
                search.setting.cluster.device_memory,
            )
        };
        let replicas = context * expert * data;
        let zero = Space::where_it_counts(&space.zero, replicas > 1).iter().copied();
        let zero = zero.filter(|zero| space.stores_states(*zero, z, replicas));
        let mut zero: Vec<_> = zero.map(|zero| (zero, bytes(zero))).collect();
        let all = zero.len();
        let fits = |bytes: u64| search.setting.capacity.is_none_or(|capacity| bytes <= capacity);
        zero.retain(|(_, bytes)| !search.prune || fits(*bytes));
        Self {
            sizes,
            placed: 0,
            share: search.setting.global_batch / (expert * data),
            pipelines: pipelines.collect(),
            too_large: (all - zero.len()) as u64,
            least_bytes: zero.iter().map(|(_, bytes)| *bytes).min().unwrap_or(u64::MAX),
            zero,
        }
    }
}

/// A legal combination of an end with one of its pipelines, by their numbers.
#[derive(Clone, Copy)]
struct Legal {
    end: usize,
    pipeline: usize,
}

/// The same in a place.
#[derive(Clone, Copy)]
pub(super) struct Open {
    legal: Legal,
    inside: [usize; Axis::COUNT],
}

impl Open {
    pub fn of<'a>(&self, ends: &'a [End]) -> (&'a End, &'a Pipeline) {
        let end = &ends[self.legal.end];
        (end, &end.pipelines[self.legal.pipeline])
    }

    pub fn placed(&self, shared: &Candidate, ends: &[End]) -> Candidate {
        let (End { sizes, .. }, Pipeline { schedule, chunks, .. }) = self.of(ends);
        Candidate { sizes: *sizes, inside: self.inside, schedule: *schedule, chunks: *chunks, ..*shared }
    }
}

impl<'a> Visit<'a> {
    pub fn new(search: &'a Search, pool: &'a Pool<'a>, rules: Rules<'a>, cut: &Cut, kept: Kept, allowed: u64) -> Self {
        let (mut ends, mut numbers): (Vec<End>, BTreeMap<(usize, usize), usize>) = Default::default();
        let mut placed = |place: &Place, outer: &Outer| {
            let end = *numbers.entry((outer.data, outer.pipe)).or_insert_with(|| {
                ends.push(End::new(search, &rules, cut, outer.data, outer.pipe));
                ends.len() - 1
            });
            ends[end].placed += 1;
            Placed { end, inside: place.inside_with(outer) }
        };
        let places =
            cut.places.iter().map(|place| place.outer.iter().map(|outer| placed(place, outer)).collect()).collect();
        let keep_weights = Space::where_it_counts(&search.space.keep_weights, cut.sizes[2] > 1);
        let setting = &search.setting;
        let plain = cut.plain();
        let rows = search.space.expert_rows.unwrap_or_else(|| setting.expert_rows(&plain));
        let expert_rows = setting.has_rows(&plain, rows).then_some(rows);
        let tally = Tally::default();
        let survivors = Survivors::default();
        let experts_over = cut.experts_over;
        let stopped = false;
        let is_rough = false;
        Self {
            search,
            pool,
            rules,
            ends,
            places,
            experts_over,
            expert_rows,
            keep_weights,
            tally,
            kept,
            survivors,
            stopped,
            is_rough,
            looks: 0,
            allowed,
        }
    }

    /// Looks at everything, until as many looks were taken as are allowed or the search is cancelled.
    ///
    /// # Errors
    /// What cannot be priced.
    pub fn run(mut self, bounds: &mut Bounds) -> Result<Self, PriceError> {
        for microbatch in self.microbatches() {
            for pass in self.passes(microbatch) {
                let legal = self.legal(&pass);
                let places = if legal.is_empty() { 0 } else { self.places.len() };
                for place in 0..places {
                    if self.looks >= self.allowed || self.search.watch.is_cancelled() {
                        self.stopped = true;
                        return Ok(self);
                    }
                    let open = self.open(&legal, place);
                    self.visit_pass(&pass, open, bounds)?;
                }
            }
        }
        Ok(self)
    }

    /// Whether anything of it is legal, with states that fit.
    pub fn has_legal(mut self) -> bool {
        let passes = self.microbatches().into_iter().flat_map(|microbatch| self.passes(microbatch));
        let passes: Vec<Candidate> = passes.collect();
        passes.iter().any(|pass| !self.legal(pass).is_empty())
    }

    /// Number of its legal configurations.
    pub fn count_legal(mut self) -> u64 {
        for microbatch in self.microbatches() {
            for pass in self.passes(microbatch) {
                self.legal(&pass);
            }
        }
        self.tally.counts.legal
    }

    /// By place, seconds that a step takes at least for what its blocks compute or send, in the least of the smallest
    /// microbatches; where scores are stored, of all.
    ///
    /// # Errors
    /// What has no program.
    pub fn least_of_blocks(mut self, bounds: &mut Bounds) -> Result<Vec<f32>, PriceError> {
        // By which kernels stored scores are computed depends on the microbatch: none tells what others take at least.
        let alike = self.search.setting.framework.attention == AttentionKernel::Flash;
        let mut least = vec![f32::INFINITY; self.places.len()];
        let mut left = if alike { SMALL_MICROBATCHES } else { usize::MAX };
        for microbatch in self.microbatches() {
            let Some(pass) = self.passes(microbatch).first().copied() else { continue };
            let legal = self.legal(&pass);
            if legal.is_empty() {
                continue;
            }
            for (place, least) in least.iter_mut().enumerate() {
                let Some(open) = self.open(&legal, place).first().copied() else { continue };
                let plain = open.placed(&pass, &self.ends);
                let block = bounds.block_seconds(&plain)?;
                *least = least.min(comparable(bounds.seconds_of_blocks(&plain, block)));
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        Ok(least)
    }

    /// The best of a few usual layouts of the first place that may fit, to begin with what is probably good.
    ///
    /// # Errors
    /// What cannot be priced.
    pub fn rough(mut self, bounds: &mut Bounds) -> Result<Option<Likely>, PriceError> {
        self.kept = Kept::new(1, false, None, None);
        self.is_rough = true;
        let keep_weights = self.keep_weights.first().copied().unwrap_or(KeepWeights::Use);
        let recompute = self.usual_recompute();
        for microbatch in self.microbatches() {
            let Some(pass) = self.passes(microbatch).first().copied() else { continue };
            let legal = self.legal(&pass);
            let open = self.open(&legal, 0);
            for (recompute, keep_communicated) in &recompute {
                let recompute = *recompute;
                let keep_communicated = *keep_communicated;
                let shared = Candidate { recompute, keep_communicated, keep_weights, ..pass };
                self.block_by_bounds(&shared, &open, bounds)?;
            }
            if !self.survivors.all.is_empty() {
                break;
            }
        }
        // ZeRO stages take as long by their passes: the one that needs least memory is likely to fit.
        let bounded =
            self.survivors.all.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.bytes.cmp(&b.bytes)));
        Ok(bounded.map(|one| Likely { candidate: one.candidate, seconds: one.seconds }))
    }

    /// Nothing and every block, where they are open; else the first choice that is.
    fn usual_recompute(&self) -> Vec<(Recompute, bool)> {
        let pipelines = self.ends.iter().flat_map(|end| &end.pipelines);
        let mut open = pipelines.flat_map(|pipeline| &pipeline.recompute).copied();
        let usual = [(Recompute::None, false), (Recompute::Full { every: 1 }, false)];
        let found: Vec<_> = usual.into_iter().filter(|choice| open.clone().any(|open| open == *choice)).collect();
        if found.is_empty() { open.next().into_iter().collect() } else { found }
    }

    fn microbatches(&self) -> Vec<usize> {
        let mut divisors = divisors(self.search.setting.global_batch);
        divisors.retain(|microbatch| self.search.space.microbatch.contains(*microbatch));
        divisors
    }

    /// Ways to cut a microbatch in a pass, none where experts lack room for their rows; data, pipe and what follows from them
    /// are still to be set.
    fn passes(&self, microbatch: usize) -> Vec<Candidate> {
        let space = &self.search.space;
        let (Some(End { sizes, .. }), Some([Placed { inside, .. }, ..])) =
            (self.ends.first(), self.places.first().map(Vec::as_slice))
        else {
            return Vec::new();
        };
        let Some(expert_rows) = self.expert_rows else { return Vec::new() };
        let mut passes = Vec::new();
        for (activations, linear, summa_panels) in space.products(sizes[0], sizes[1]) {
            for overlap_chunks in space.overlap_chunks() {
                passes.push(Candidate {
                    sizes: *sizes,
                    inside: *inside,
                    microbatch,
                    activations,
                    linear,
                    summa_panels,
                    overlap: space.overlap.unwrap_or(Overlap::ALL),
                    overlap_chunks,
                    bucket: space.bucket,
                    experts_over: self.experts_over,
                    dispatch: space.dispatch_of(activations),
                    expert_rows,
                    vocab_multiple: space.vocab_multiple(),
                    ..Candidate::PLAIN
                });
            }
        }
        passes
    }

    /// What goes with a way to cut a microbatch and is legal, end after end; everything is counted, in all places.
    fn legal(&mut self, pass: &Candidate) -> Vec<Legal> {
        let mut legal = Vec::new();
        for (index, end) in self.ends.iter().enumerate() {
            if !end.share.is_multiple_of(pass.microbatch) {
                continue;
            }
            let placed = Candidate { sizes: end.sizes, ..*pass };
            // One layout for all pipelines: rules are asked millions of times.
            let Ok(mut layout) = self.rules.layout(&placed) else { continue };
            let cut = layout.broken_rule(self.rules.model, Scope::Pass);
            for (number, Pipeline { schedule, chunks, recompute, refused }) in end.pipelines.iter().enumerate() {
                let candidate = Candidate { schedule: *schedule, chunks: *chunks, ..placed };
                let placed = end.placed * self.keep_weights.len() as u64;
                let each = (end.zero.len() as u64 + end.too_large) * placed;
                let configurations = each * recompute.len() as u64;
                if let Some((recompute, keep_communicated)) = refused.first().copied() {
                    let example = Candidate { recompute, keep_communicated, ..candidate };
                    self.tally.refuse(Rule::Recompute, each * refused.len() as u64, || example);
                }
                (layout.schedule, layout.chunks) = (*schedule, *chunks);
                let broken = cut.or_else(|| layout.broken_rule(self.rules.model, Scope::Schedule));
                let broken = broken.or_else(|| self.search.space.broken_schedule(self.rules.model, &layout));
                if let Some(rule) = broken {
                    self.tally.refuse(rule, configurations, || candidate);
                    continue;
                }
                let counts = &mut self.tally.counts;
                counts.enumerated += configurations;
                counts.legal += configurations;
                counts.too_large += recompute.len() as u64 * placed * end.too_large;
                if configurations > 0 && !end.zero.is_empty() {
                    legal.push(Legal { end: index, pipeline: number });
                }
            }
        }
        legal
    }

    /// Those of a place.
    fn open(&self, legal: &[Legal], place: usize) -> Vec<Open> {
        let of = |Placed { end, inside }: Placed| {
            let first = legal.partition_point(|legal| legal.end < end);
            let legal = legal[first..].iter().take_while(move |legal| legal.end == end);
            legal.map(move |legal| Open { legal: *legal, inside })
        };
        self.places[place].iter().flat_map(|placed| of(*placed)).collect()
    }

    /// Everything that cuts a microbatch alike.
    fn visit_pass(&mut self, pass: &Candidate, mut open: Vec<Open>, bounds: &mut Bounds) -> Result<(), PriceError> {
        if open.is_empty() {
            return Ok(());
        }
        if self.search.prune {
            self.open_by_bounds(pass, &mut open, bounds)?;
        }
        let mut recompute: Vec<(Recompute, bool)> = Vec::new();
        for choice in open.iter().flat_map(|open| &open.of(&self.ends).1.recompute) {
            if !recompute.contains(choice) {
                recompute.push(*choice);
            }
        }
        for (recompute, keep_communicated) in recompute {
            for keep_weights in self.keep_weights {
                let shared = Candidate { recompute, keep_communicated, keep_weights: *keep_weights, ..*pass };
                self.block_by_bounds(&shared, &open, bounds)?;
            }
        }
        Ok(())
    }
}
