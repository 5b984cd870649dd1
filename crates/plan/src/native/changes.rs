//! What another choice would give: the layouts that differ from one in a single choice.

use std::collections::BTreeSet;

use quadrille_cost::native::{Candidate, Memory, Price, PriceError};
use quadrille_cost::simulation::SimulationError;
use quadrille_spec::{Activations, Axis, Dispatch, Recompute, Schedule};
use rayon::prelude::*;

use super::placement::{domain, placements};
use super::pool::Pool;
use super::question::Cancel;
use super::ranking::Ranked;
use super::setting::Setting;
use super::space::{Space, divisors};
use super::survivors::{Detail, fitting};

/// How many changes are shown.
const PRICED: usize = 16;

/// A layout that differs in one choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What was changed, in words.
    pub what: String,
    /// The changed layout.
    pub candidate: Candidate,
    /// Seconds of its step.
    pub seconds: f64,
    /// Memory of the rank that needs most.
    pub memory: Memory,
}

/// What is changed.
enum What {
    /// In words.
    Said(String),
    /// The size of microbatches: the best of all.
    Microbatch,
    /// The schedule, with the best number of chunks.
    Schedule,
    /// Recomputation of whole blocks, with the best number of them in a segment.
    FullRecompute,
}

impl What {
    /// In words, from a layout to another.
    fn told(self, from: &Candidate, to: &Candidate) -> String {
        let schedule = |candidate: &Candidate| match candidate.chunks {
            1 => candidate.schedule.to_string(),
            chunks => format!("{} with {chunks} chunks", candidate.schedule),
        };
        match self {
            Self::Said(what) => what,
            Self::Microbatch => format!("microbatch {} instead of {}", to.microbatch, from.microbatch),
            Self::Schedule => format!("{} instead of {}", schedule(to), schedule(from)),
            Self::FullRecompute => format!("recompute {} instead of {}", to.recompute, from.recompute),
        }
    }
}

/// A layout that a change can mean, with a lower bound of its seconds.
struct Variant {
    least: f64,
    /// The number of the change.
    change: usize,
    candidate: Candidate,
}

/// By change: the best layout that it can mean, of those that were priced.
struct Best(Vec<Option<Ranked>>);

impl Best {
    /// Whether enough changes are known to be faster than a variant.
    fn is_complete(&self, variant: &Variant) -> bool {
        let mut known: Vec<f64> = self.0.iter().flatten().map(|ranked| ranked.price.seconds).collect();
        known.sort_by(f64::total_cmp);
        known.get(PRICED - 1).is_some_and(|slowest| variant.least > *slowest)
    }

    /// Whether something faster is known that its change can mean.
    fn is_better(&self, variant: &Variant) -> bool {
        self.0[variant.change].is_some_and(|ranked| variant.least > ranked.price.seconds)
    }

    fn offer(&mut self, variant: &Variant, ranked: Ranked) {
        let best = &mut self.0[variant.change];
        if best.is_none_or(|known| ranked.order(&known).is_lt()) {
            *best = Some(ranked);
        }
    }
}

impl Setting<'_> {
    /// The legal layouts that fit and differ from `candidate` in one choice, fastest first. A factor that moves from
    /// one axis to another is one choice; where it is needed, microbatch and placement follow. Of a layout that the framework
    /// runs, those that it runs too. The sixteen fastest.
    ///
    /// # Errors
    /// What cannot be priced; what nobody waits for any more.
    pub fn changes(&self, candidate: &Candidate, cancel: &Cancel) -> Result<Vec<Change>, PriceError> {
        let problem = self.problem()?;
        let rules = self.rules();
        let mut space = Space::around(candidate, self.model);
        space.keep_to(&self.framework);
        let is_run = |candidate: &Candidate| space.contains(candidate) && space.runs(&rules, candidate);
        let runs = |variant: &Candidate| !is_run(candidate) || is_run(variant);
        let variants = self.variants(candidate).into_iter().map(|(what, variants)| {
            let legal = variants.into_iter().filter(|variant| runs(variant) && rules.check(variant).is_ok());
            (what, legal.collect())
        });
        self.best_of_each(candidate, &Pool::new(&problem, self.learned), variants.collect(), cancel)
    }

    /// The fastest changes, each the best of the layouts that it can mean: those that bounds say are fastest are priced, until
    /// the others cannot be among them.
    fn best_of_each(
        &self,
        from: &Candidate,
        pool: &Pool,
        meant: Vec<(What, Vec<Candidate>)>,
        cancel: &Cancel,
    ) -> Result<Vec<Change>, PriceError> {
        let priced = |candidates: &[Candidate]| {
            let fitting = fitting(candidates, Detail::Compared, self, pool, cancel)?;
            // Those that were not priced are no worse.
            if cancel.is_cancelled() { Err(PriceError::from(SimulationError::Stopped)) } else { Ok(fitting) }
        };
        let all =
            meant.iter().enumerate().flat_map(|(change, (_, variants))| variants.iter().map(move |c| (change, *c)));
        let bounded = |(change, candidate): (usize, Candidate)| {
            let (seconds, bytes) = pool.with(|bounds| {
                let pieces = bounds.pieces(&candidate)?;
                bounds.by_lists(&candidate, &pieces)
            })?;
            let fits = self.capacity.is_none_or(|capacity| bytes <= capacity);
            Ok(fits.then_some(Variant { least: seconds, change, candidate }))
        };
        let all: Vec<(usize, Candidate)> = all.collect();
        let open: Vec<Option<Variant>> = all.into_par_iter().map(bounded).collect::<Result<_, PriceError>>()?;
        let mut open: Vec<Variant> = open.into_iter().flatten().collect();
        open.sort_by(|a, b| a.least.total_cmp(&b.least));
        let mut best = Best(vec![None; meant.len()]);
        // As many at once as there are threads; those that would not have been priced one by one change nothing.
        for part in open.chunks(rayon::current_num_threads()) {
            if part.first().is_some_and(|first| best.is_complete(first)) {
                break;
            }
            let promising = part.iter().filter(|variant| !best.is_better(variant)).map(|variant| variant.candidate);
            priced(&promising.collect::<Vec<_>>())?;
            for variant in part {
                if best.is_complete(variant) {
                    break;
                }
                if !best.is_better(variant) {
                    priced(&[variant.candidate])?.into_iter().for_each(|ranked| best.offer(variant, ranked));
                }
            }
        }
        let found = meant.into_iter().zip(best.0);
        let mut found: Vec<(What, Ranked)> =
            found.filter_map(|((what, _), ranked)| ranked.map(|ranked| (what, ranked))).collect();
        found.sort_by(|(_, a), (_, b)| a.order(b));
        let change = |(what, Ranked { candidate, price }): (What, Ranked)| {
            let Price { seconds, memory, .. } = price;
            Change { what: what.told(from, &candidate), candidate, seconds, memory }
        };
        Ok(found.into_iter().take(PRICED).map(change).collect())
    }

    /// Changes, each with the layouts that it can mean.
    fn variants(&self, from: &Candidate) -> Vec<(What, Vec<Candidate>)> {
        let said = |(what, variants)| (What::Said(what), variants);
        let mut all: Vec<(What, Vec<Candidate>)> = self.moved_factors(from).into_iter().map(said).collect();
        all.extend(self.other_places(from).into_iter().map(said));
        let space = Space::default();
        let others = |variants: &mut dyn Iterator<Item = Candidate>| -> Vec<Candidate> {
            variants.filter(|variant| variant != from).collect()
        };
        let microbatches = divisors(self.global_batch / from.batch_shares()).into_iter();
        let of_microbatch = |microbatch| Candidate { microbatch, ..*from };
        all.push((What::Microbatch, others(&mut microbatches.map(of_microbatch))));
        let schedules = space.schedules(self.model.layers(), from.size(Axis::Pipe));
        for kind in &space.schedules {
            let of_kind = schedules.iter().filter(|(schedule, _)| schedule == kind);
            let with =
                |(schedule, chunks): &(Schedule, usize)| Candidate { schedule: *schedule, chunks: *chunks, ..*from };
            all.push((What::Schedule, others(&mut of_kind.map(with))));
        }
        let of_recompute = |recompute: &Recompute| {
            let keep_communicated = from.keep_communicated && *recompute != Recompute::None;
            Candidate { recompute: *recompute, keep_communicated, ..*from }
        };
        let is_full = |recompute: &&Recompute| matches!(recompute, Recompute::Full { .. });
        all.push((What::FullRecompute, others(&mut space.recompute.iter().filter(is_full).map(of_recompute))));
        let mut add = |what: String, variant: Candidate| {
            if variant != *from {
                all.push((What::Said(what), vec![variant]));
            }
        };
        for recompute in space.recompute.iter().filter(|recompute| !is_full(recompute)) {
            add(format!("recompute {recompute} instead of {}", from.recompute), of_recompute(recompute));
        }
        let kept = if from.keep_communicated { "repeat collectives" } else { "keep outputs of collectives" };
        add(format!("recompute: {kept}"), Candidate { keep_communicated: !from.keep_communicated, ..*from });
        if from.size(Axis::Context) * from.batch_shares() > 1 {
            for zero in &space.zero {
                add(format!("ZeRO {zero} instead of {}", from.zero), Candidate { zero: *zero, ..*from });
            }
        }
        for (activations, linear, summa_panels) in space.products(from.size(Axis::X), from.size(Axis::Y)) {
            // What is scattered has no duplicates to send.
            let dispatch = if activations == Activations::Scattered { Dispatch::Dropped } else { from.dispatch };
            let variant = Candidate { activations, linear, summa_panels, dispatch, ..*from };
            if (activations, linear) != (from.activations, from.linear) {
                let before = format!("{} with {} activations", from.linear, from.activations);
                add(format!("{linear} with {activations} activations instead of {before}"), variant);
            }
        }
        for overlap_chunks in space.overlap_chunks() {
            let what = format!("{overlap_chunks} overlap chunks instead of {}", from.overlap_chunks);
            add(what, Candidate { overlap_chunks, ..*from });
        }
        if from.size(Axis::Z) > 1 {
            for keep_weights in space.keep_weights {
                let what = format!("gathered weights kept for a {keep_weights} instead of a {}", from.keep_weights);
                add(what, Candidate { keep_weights, ..*from });
            }
        }
        all
    }

    /// A prime factor of one axis goes to another.
    fn moved_factors(&self, from: &Candidate) -> Vec<(String, Vec<Candidate>)> {
        let open = Space::around(from, self.model).open_axes();
        let mut moves = Vec::new();
        for source in Axis::ALL {
            for factor in prime_factors(from.size(source)) {
                for target in open.iter().filter(|target| *target != source) {
                    let mut sizes = from.sizes;
                    sizes[source as usize] /= factor;
                    sizes[target as usize] *= factor;
                    let [down, up] = [source, target]
                        .map(|axis| format!("{axis} {} instead of {}", sizes[axis as usize], from.size(axis)));
                    moves.push((format!("{up}, {down}"), self.on_grid(from, sizes)));
                }
            }
        }
        moves
    }

    /// The layout with other sizes: every placement, with its microbatch, or if that is not legal with every one.
    fn on_grid(&self, from: &Candidate, sizes: [usize; Axis::COUNT]) -> Vec<Candidate> {
        let rules = self.rules();
        let [x, y, .., pipe] = sizes;
        let interleaved = from.schedule == Schedule::Interleaved;
        let mut moved = Candidate { sizes, inside: [1; Axis::COUNT], ..*from };
        // Other ranks may need more room; what was said stays.
        if from.expert_rows == self.expert_rows(from) {
            moved.expert_rows = self.expert_rows(&moved);
        }
        if pipe == 1 {
            (moved.schedule, moved.chunks) = (Schedule::OneForwardOneBackward, 1);
        } else if interleaved && pipe * from.chunks > self.model.layers() + 2 {
            moved.chunks = Space::default().several_chunks(self.model.layers(), pipe).first().copied().unwrap_or(1);
        }
        if let Some((.., panels)) =
            Space::default().products(x, y).into_iter().find(|(_, linear, _)| *linear == from.linear)
        {
            moved.summa_panels = panels;
        }
        let places = placements(sizes, domain(self.cluster, self.per_node, from.devices()));
        let moved = &moved;
        let with =
            |microbatch: usize| places.iter().map(move |inside| Candidate { inside: *inside, microbatch, ..*moved });
        let shares = moved.batch_shares();
        if rules.check(moved).is_ok() || !self.global_batch.is_multiple_of(shares) {
            return with(from.microbatch).collect();
        }
        divisors(self.global_batch / shares).into_iter().flat_map(with).collect()
    }

    /// The same sizes elsewhere on the nodes.
    fn other_places(&self, from: &Candidate) -> Vec<(String, Vec<Candidate>)> {
        let name = |inside: [usize; Axis::COUNT]| {
            let named = Axis::ALL.into_iter().filter(|axis| inside[*axis as usize] > 1);
            let named: Vec<_> = named.map(|axis| format!("{axis}={}", inside[axis as usize])).collect();
            if named.is_empty() { "nothing".to_owned() } else { named.join(",") }
        };
        let others = placements(from.sizes, domain(self.cluster, self.per_node, from.devices()))
            .into_iter()
            .filter(|inside| *inside != from.inside);
        others
            .map(|inside| {
                let what = format!("{} inside a node instead of {}", name(inside), name(from.inside));
                (what, vec![Candidate { inside, ..*from }])
            })
            .collect()
    }
}

/// Every prime that divides a number, once.
fn prime_factors(number: usize) -> BTreeSet<usize> {
    let mut rest = number;
    let mut found = BTreeSet::new();
    let mut factor = 2;
    while factor * factor <= rest {
        while rest.is_multiple_of(factor) {
            rest /= factor;
            found.insert(factor);
        }
        factor += 1;
    }
    if rest > 1 {
        found.insert(rest);
    }
    found
}
