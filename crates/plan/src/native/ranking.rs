//! The best of what was priced: the fastest, and the front of time against memory.

use std::cmp::Ordering;

use quadrille_cost::native::{Candidate, Price};
use quadrille_spec::{Axis, AxisSet, Recompute};

use super::simplicity::Simplest;
use super::survivors::Survivor;

/// A layout with its price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// The layout.
    pub candidate: Candidate,
    /// Its price.
    pub price: Price,
}

impl Ranked {
    /// Faster first; of equal times the one that needs less memory, then the simpler one. Times that differ by rounding
    /// only are equal: single precision decides.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let key = |ranked: &Self| (ranked.price.memory.total(), tie_break(&ranked.candidate));
        comparable(self.price.seconds)
            .total_cmp(&comparable(other.price.seconds))
            .then_with(|| key(self).cmp(&key(other)))
    }
}

/// Seconds as they are compared.
pub(super) fn comparable(seconds: f64) -> f32 {
    seconds as f32
}

/// Numbers that are equal for equal candidates only, and smaller for what has fewer parts and switches.
fn tie_break(candidate: &Candidate) -> [usize; 31] {
    let size = |axis| candidate.size(axis);
    let every = match candidate.recompute {
        Recompute::None => 0,
        Recompute::Selective => 1,
        Recompute::Full { every } => every.saturating_add(1),
    };
    let overlap = candidate.overlap;
    let spread = candidate.experts_over;
    let [ix, iy, iz, ic, ie, id, ip] = candidate.inside.map(|inside| usize::MAX - inside);
    [
        size(Axis::Pipe),
        size(Axis::Y),
        size(Axis::X),
        size(Axis::Context),
        size(Axis::Z),
        size(Axis::Expert),
        size(Axis::Data),
        every,
        usize::from(candidate.keep_communicated),
        candidate.zero as usize,
        candidate.linear as usize,
        candidate.activations as usize,
        candidate.overlap_chunks,
        candidate.chunks,
        candidate.schedule as usize,
        candidate.keep_weights as usize,
        candidate.summa_panels,
        usize::MAX - candidate.microbatch,
        ix,
        iy,
        iz,
        ic,
        ie,
        id,
        ip,
        usize::from(!overlap.all_reduce),
        usize::from(!overlap.reduce_scatter),
        usize::from(!overlap.all_gather),
        usize::from(!overlap.all_to_all),
        spread.iter().map(|axis| 1 << axis as usize).sum(),
        candidate.dispatch as usize,
    ]
}

/// What variants of a layout have in common: sizes of axes, and how experts are spread over them.
pub(super) fn family(candidate: &Candidate) -> ([usize; Axis::COUNT], AxisSet) {
    (candidate.sizes, candidate.spreading())
}

/// The fastest few, fastest first.
#[derive(Debug, Clone)]
struct Fastest {
    top: usize,
    /// True if at most one layout of every family is kept.
    distinct: bool,
    ranked: Vec<Ranked>,
}

impl Fastest {
    pub fn new(top: usize, distinct: bool) -> Self {
        Self { top, distinct, ranked: Vec::new() }
    }

    /// The time above which a layout is not kept: that of the last where there are enough, or of what is known of its family.
    pub fn limit(&self, candidate: &Candidate) -> f32 {
        let last = self.ranked.last().filter(|_| self.ranked.len() >= self.top);
        let seconds = |ranked: &Ranked| comparable(ranked.price.seconds);
        last.into_iter().chain(self.of_family(candidate)).map(seconds).fold(f32::INFINITY, f32::min)
    }

    /// What is kept of a layout's family, where it is one.
    fn of_family(&self, candidate: &Candidate) -> Option<&Ranked> {
        self.ranked.iter().find(|other| self.distinct && family(&other.candidate) == family(candidate))
    }

    pub fn offer(&mut self, offered: Ranked) {
        if comparable(offered.price.seconds) > self.limit(&offered.candidate) {
            return;
        }
        if self.distinct
            && let Some(at) =
                self.ranked.iter().position(|other| family(&other.candidate) == family(&offered.candidate))
        {
            if self.ranked[at].order(&offered).is_le() {
                return;
            }
            self.ranked.remove(at);
        }
        // What several parts of a search kept is offered several times.
        let Err(at) = self.ranked.binary_search_by(|other| other.order(&offered)) else { return };
        self.ranked.insert(at, offered);
        self.ranked.truncate(self.top);
    }
}

/// The layouts than which none is both faster and smaller by whole grains of memory, fastest first: so each needs fewer grains than
/// the one before.
#[derive(Debug, Clone)]
struct Front {
    /// Bytes that make a difference, at least 1.
    grain: u64,
    ranked: Vec<Ranked>,
}

impl Front {
    pub fn new(grain: u64) -> Self {
        Self { grain, ranked: Vec::new() }
    }

    /// Whether something found is faster than these bounds, and as small in whole grains.
    pub fn beats(&self, seconds: f32, bytes: u64) -> bool {
        // The slowest one that is no slower is the smallest of those.
        let faster = self.ranked.partition_point(|ranked| comparable(ranked.price.seconds) < seconds);
        self.ranked[..faster].last().is_some_and(|ranked| self.grains(ranked) <= bytes.div_ceil(self.grain))
    }

    fn grains(&self, ranked: &Ranked) -> u64 {
        ranked.price.memory.total().div_ceil(self.grain)
    }

    pub fn offer(&mut self, offered: Ranked) {
        let bytes = |ranked: &Ranked| self.grains(ranked);
        // What several parts of a search kept is offered several times.
        let Err(at) = self.ranked.binary_search_by(|other| other.order(&offered)) else { return };
        // The last that is no slower is the smallest of those.
        if self.ranked[..at].last().is_some_and(|faster| bytes(faster) <= bytes(&offered)) {
            return;
        }
        // Of those that are no faster the first are the largest.
        let beaten = self.ranked[at..].partition_point(|slower| bytes(slower) >= bytes(&offered));
        self.ranked.splice(at..at + beaten, [offered]);
    }
}

/// All that a search keeps.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    fastest: Option<Fastest>,
    front: Option<Front>,
    /// Whether the layout of least memory is wanted, and it.
    smallest: Option<Option<Ranked>>,
    simplest: Option<Simplest>,
    safe: Option<Safe>,
}

/// The fastest layout that takes at most so many bytes.
#[derive(Debug, Clone)]
struct Safe {
    most_bytes: u64,
    fastest: Fastest,
}

impl Safe {
    fn offer(&mut self, offered: Ranked) {
        if offered.price.memory.total() <= self.most_bytes {
            self.fastest.offer(offered);
        }
    }

    /// True if a layout that takes at least this time and memory would not be kept.
    fn is_worthless(&self, simplest: &Candidate, seconds: f32, bytes: u64) -> bool {
        bytes > self.most_bytes || seconds > self.fastest.limit(simplest)
    }

    fn found(&self) -> Option<Ranked> {
        self.fastest.ranked.first().copied()
    }
}

impl Kept {
    /// With a front that tells memory apart by so many bytes, if one is wanted, and the fastest layout of at most `safe` bytes.
    pub fn new(top: usize, distinct: bool, front: Option<u64>, safe: Option<u64>) -> Self {
        let fastest = (top > 0).then(|| Fastest::new(top, distinct));
        let safe = safe.map(|most_bytes| Safe { most_bytes, fastest: Fastest::new(1, false) });
        Self { fastest, front: front.map(Front::new), smallest: None, simplest: None, safe }
    }

    pub fn smallest() -> Self {
        Self { fastest: None, front: None, smallest: Some(None), simplest: None, safe: None }
    }

    pub fn simplest(simplest: Simplest) -> Self {
        Self { fastest: None, front: None, smallest: None, simplest: Some(simplest), safe: None }
    }

    /// Orders what is more likely kept before what is less.
    pub fn promise(&self, one: &Survivor, other: &Survivor) -> Ordering {
        let faster = one.seconds.total_cmp(&other.seconds);
        match &self.simplest {
            _ if self.smallest.is_some() => one.bytes.cmp(&other.bytes),
            Some(simplest) => {
                let [one, other] = [one, other].map(|survivor| simplest.complexity(&survivor.candidate));
                one.cmp(&other).then(faster)
            }
            None => faster,
        }
    }

    /// The seconds of the fastest that is known, if it was wanted.
    pub fn fastest_seconds(&self) -> Option<f64> {
        Some(self.fastest.as_ref()?.ranked.first()?.price.seconds)
    }

    /// The fastest layout that is known of at most as many bytes as are safe, if it was wanted.
    pub fn safe(&self) -> Option<Ranked> {
        self.safe.as_ref().and_then(Safe::found)
    }

    /// Whether neither `simplest` nor the same with more switches would be kept, if it takes at least this time and memory.
    pub fn is_worthless(&self, simplest: &Candidate, seconds: f64, bytes: u64) -> bool {
        let seconds = comparable(seconds);
        self.simplest.as_ref().is_none_or(|found| found.is_worthless(simplest, seconds, bytes))
            && self.fastest.as_ref().is_none_or(|fastest| seconds > fastest.limit(simplest))
            && self.safe.as_ref().is_none_or(|safe| safe.is_worthless(simplest, seconds, bytes))
            && self.front.as_ref().is_none_or(|front| front.beats(seconds, bytes))
            && self.smallest.is_none_or(|smallest| smallest.is_some_and(|found| found.price.memory.total() < bytes))
    }

    pub fn offer(&mut self, offered: Ranked) {
        if let Some(fastest) = &mut self.fastest {
            fastest.offer(offered);
        }
        if let Some(front) = &mut self.front {
            front.offer(offered);
        }
        if let Some(safe) = &mut self.safe {
            safe.offer(offered);
        }
        if let Some(smallest) = &mut self.smallest {
            let bytes = |ranked: &Ranked| ranked.price.memory.total();
            let smaller =
                |found: &Ranked| bytes(found).cmp(&bytes(&offered)).then_with(|| found.order(&offered)).is_gt();
            if smallest.as_ref().is_none_or(smaller) {
                *smallest = Some(offered);
            }
        }
        if let Some(simplest) = &mut self.simplest {
            simplest.offer(offered);
        }
    }

    pub fn add(&mut self, other: &Self) {
        let fastest = other.fastest.iter().flat_map(|fastest| &fastest.ranked);
        let front = other.front.iter().flat_map(|front| &front.ranked);
        let one = other.smallest.iter().flatten().copied().chain(other.simplest.iter().filter_map(Simplest::found));
        fastest.chain(front).copied().chain(one).chain(other.safe()).for_each(|ranked| self.offer(ranked));
    }

    /// The fastest, the front, and the one of least memory or the simplest.
    pub fn into_parts(self) -> (Vec<Ranked>, Vec<Ranked>, Option<Ranked>) {
        let fastest = self.fastest.map_or_else(Vec::new, |fastest| fastest.ranked);
        let front = self.front.map_or_else(Vec::new, |front| front.ranked);
        (fastest, front, self.smallest.flatten().or(self.simplest.and_then(|simplest| simplest.found())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quadrille_cost::native::{Memory, Parts};

    use super::*;

    fn ranked(seconds: u8, bytes: u8, data: usize) -> Ranked {
        let candidate = Candidate { sizes: [1, 1, 1, 1, 1, data, 1], ..Candidate::PLAIN };
        let memory = Memory { activations: bytes.into(), ..Memory::default() };
        let seconds = seconds.into();
        Ranked {
            candidate,
            price: Price { seconds, parts: Parts::default(), memory, model_flops: 0.0, executed_flops: 0.0 },
        }
    }

    proptest! {
        #[test]
        fn fronts_hold_what_nothing_dominates(
            points in prop::collection::vec((0..20_u8, 0..20_u8, 1..4_usize), 0..60),
            grain in 1..6_u64,
        ) {
            let all: Vec<Ranked> = points.into_iter().map(|(s, b, data)| ranked(s, b, data)).collect();
            let point = |ranked: &Ranked| (comparable(ranked.price.seconds), ranked.price.memory.total().div_ceil(grain));
            let dominates = |one: &Ranked, other: &Ranked| {
                let (seconds, bytes) = point(one);
                let (others, other_bytes) = point(other);
                seconds <= others && bytes <= other_bytes && one.order(other).is_lt()
            };
            let mut expected: Vec<Ranked> =
                all.iter().filter(|ranked| !all.iter().any(|other| dominates(other, ranked))).copied().collect();
            expected.sort_by(Ranked::order);
            expected.dedup();
            let mut front = Front::new(grain);
            all.iter().for_each(|ranked| front.offer(*ranked));
            prop_assert_eq!(front.ranked, expected);
        }
    }
}
