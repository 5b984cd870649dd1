//! Which of several layouts is the simplest: of those whose times cannot be told apart, it is the one to run.

use quadrille_cost::native::{Candidate, Framework, inside_by};
use quadrille_spec::{
    Activations, Axis, AxisOrder, AxisSet, Dispatch, EvenPieces, KeepWeights, Linear, Overlap, Recompute, Schedule,
    Zero,
};

use super::budget::Deadline;
use super::ranking::{Ranked, comparable};

/// How much slower than the fastest, as a fraction of its time, a layout may be that is advised in its place: predicted times of
/// different layouts of one model on one machine err by at least as much beside each other, so that they cannot be told apart.
pub const TOLERANCE: f64 = 0.03;

/// How far a layout is from the simplest one. Compared field by field, in their order; less is simpler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complexity {
    /// Axes above 1, without data: x, z, expert and pipe count once. y, which only few programs have, counts twice, and so does
    /// context, which long sequences need; four times where it is larger than x, which people use first.
    pub axes: usize,
    /// Whether pieces beside the first and the last, which have the embedding and the head, have different numbers of layers.
    pub uneven_pieces: bool,
    /// Pieces of layers on a stage.
    pub chunks: usize,
    /// 1 if neighbours along x or y lie in different nodes, and 1 if nodes are filled in another order than Megatron-LM fills them:
    /// x, y, context, expert, z, data, pipe.
    pub places: usize,
    /// Axes, without data, whose size is no power of two.
    pub odd_sizes: usize,
    /// Choices that differ from the usual: a schedule beside 1F1B and its interleaving, recomputation (counted twice where
    /// several blocks are computed again at once), ZeRO 2, replicated activations, SUMMA, parts of a microbatch, weights that are
    /// kept, overlap that is off, tokens that are duplicated, and each axis beside expert over which experts are spread. ZeRO 1 is
    /// as usual as none.
    pub switches: usize,
}

impl Complexity {
    /// That of a layout of a model of so many layers.
    pub fn of(candidate: &Candidate, layers: usize) -> Self {
        let stages = candidate.size(Axis::Pipe);
        let chunks = if stages > 1 { candidate.chunks } else { 1 };
        let pieces = stages * chunks;
        // As many as are longer are not at the ends.
        let longer = EvenPieces::new(layers, stages, chunks).longer().len();
        let sized = Axis::ALL.into_iter().filter(|axis| *axis != Axis::Data).map(|axis| candidate.size(axis));
        Self {
            axes: axes(candidate),
            uneven_pieces: longer > 0 && longer + 2 < pieces,
            chunks,
            places: places(candidate),
            odd_sizes: sized.filter(|size| !size.is_power_of_two()).count(),
            switches: switches(candidate),
        }
    }
}

fn axes(candidate: &Candidate) -> usize {
    let weight = |axis| match axis {
        Axis::Data => 0,
        Axis::Context if candidate.size(Axis::Context) > candidate.size(Axis::X) => 4,
        Axis::Y | Axis::Context => 2,
        Axis::X | Axis::Z | Axis::Expert | Axis::Pipe => 1,
    };
    Axis::ALL.into_iter().filter(|axis| candidate.size(*axis) > 1).map(weight).sum()
}

fn places(candidate: &Candidate) -> usize {
    let is_split = [Axis::X, Axis::Y].into_iter().any(|axis| candidate.inside[axis as usize] < candidate.size(axis));
    let usual = AxisOrder::usual_of(Framework::MEGATRON.name);
    let is_usual = candidate.inside == inside_by(usual.axes(), candidate.sizes, candidate.domain());
    usize::from(is_split) + usize::from(!is_usual)
}

fn switches(candidate: &Candidate) -> usize {
    let stages = candidate.size(Axis::Pipe);
    let mesh = candidate.size(Axis::X) * candidate.size(Axis::Y);
    let recompute = match candidate.recompute {
        Recompute::None => 0,
        Recompute::Selective | Recompute::Full { every: 1 } => 1,
        Recompute::Full { .. } => 2,
    };
    let usual_schedule = matches!(candidate.schedule, Schedule::OneForwardOneBackward | Schedule::Interleaved);
    let beside: AxisSet = candidate.spreading().iter().filter(|axis| *axis != Axis::Expert).collect();
    let switched = [
        stages > 1 && !usual_schedule,
        candidate.keep_communicated,
        candidate.zero == Zero::Gradients,
        mesh > 1 && candidate.activations == Activations::Replicated,
        mesh > 1 && candidate.linear == Linear::Summa,
        candidate.overlap_chunks > 1,
        candidate.size(Axis::Z) > 1 && candidate.keep_weights == KeepWeights::Step,
        candidate.overlap != Overlap::ALL,
        candidate.dispatch == Dispatch::Duplicated,
    ];
    recompute + switched.into_iter().filter(|switched| *switched).count() + beside.iter().count()
}

/// The simplest of the layouts that take at most so long; of equally simple ones the first by [`Ranked::order`].
#[derive(Debug, Clone)]
pub(super) struct Simplest {
    /// The most seconds that it may take, as they are compared.
    limit: f32,
    layers: usize,
    deadline: Option<Deadline>,
    /// The most bytes that it may take.
    most_bytes: u64,
    found: Option<(Complexity, Ranked)>,
}

impl Simplest {
    /// Among layouts of a model of so many layers, which keep a deadline if there is one, and take at most so many bytes.
    pub fn new(limit: f64, layers: usize, deadline: Option<Deadline>, most_bytes: Option<u64>) -> Self {
        let most_bytes = most_bytes.unwrap_or(u64::MAX);
        Self { limit: comparable(limit), layers, deadline, most_bytes, found: None }
    }

    /// True if neither `simplest`, which takes at least this time and memory, nor the same with more switches would be kept.
    pub fn is_worthless(&self, simplest: &Candidate, seconds: f32, bytes: u64) -> bool {
        let is_beaten = |(complexity, found): (Complexity, Ranked)| {
            let ordered = Complexity::of(simplest, self.layers).cmp(&complexity);
            ordered.then_with(|| seconds.total_cmp(&comparable(found.price.seconds))).is_gt()
        };
        seconds > self.limit || bytes > self.most_bytes || self.found.is_some_and(is_beaten)
    }

    pub fn complexity(&self, candidate: &Candidate) -> Complexity {
        Complexity::of(candidate, self.layers)
    }

    pub fn offer(&mut self, offered: Ranked) {
        let is_late = self.deadline.is_some_and(|deadline| !deadline.is_kept(&offered));
        let is_large = offered.price.memory.total() > self.most_bytes;
        if is_late || is_large || comparable(offered.price.seconds) > self.limit {
            return;
        }
        let complexity = self.complexity(&offered.candidate);
        let is_simpler =
            |(other, found): (Complexity, Ranked)| complexity.cmp(&other).then_with(|| offered.order(&found)).is_lt();
        if self.found.is_none_or(is_simpler) {
            self.found = Some((complexity, offered));
        }
    }

    pub fn found(&self) -> Option<Ranked> {
        self.found.map(|(_, found)| found)
    }
}
