//! Bytes that a rank has at least: that it allocates, or, of other frameworks than this program's engine, that live at once.

use std::ops::Range;

use quadrille_spec::{Axis, AxisSet, EvenPieces, Recompute, Schedule, Zero};
use quadrille_step::INDEX_BYTES;
use quadrille_step::schedule::{Action, Pass};

use super::holdings::Life;
use super::line::Line;
use super::measured::Place;
use super::template::Elements;
use super::{Bounds, Pieces, SEGMENTS, even};
use crate::native::{Candidate, StateBytes};

impl Bounds<'_> {
    /// Bytes that the rank of a candidate's program which has most has at least.
    pub fn bytes(&self, c: &Candidate, pieces: &Pieces) -> u64 {
        self.bytes_with(c, pieces, None)
    }

    /// The same; closer with the lists of the schedule.
    pub(super) fn bytes_with(&self, c: &Candidate, pieces: &Pieces, lists: Option<&[Vec<Action>]>) -> u64 {
        let even = even(self.problem, c);
        let of = |stage: usize| self.bytes_of(c, pieces, even, stage, lists.map(|lists| lists[stage].as_slice()));
        self.largest_stages(c, pieces, even).into_iter().map(of).fold(0.0, f64::max) as u64
    }

    /// Stages of which one has most, or nearly. What is in flight grows less from stage to stage.
    fn largest_stages(&self, c: &Candidate, pieces: &Pieces, even: EvenPieces) -> Vec<usize> {
        let stages = c.size(Axis::Pipe);
        let last = stages - 1;
        // Where weight gradients are put off, the last but one stage puts most off beside the last.
        let putting_off = if c.schedule == Schedule::ZeroBubble { last.saturating_sub(1) } else { last };
        let mut largest = vec![0, last, putting_off];
        if pieces.measured.is_mixed() {
            // Of several whose blocks are alike the first.
            let differ =
                |a: usize, b: usize| !self.makeups.counts(even.range(a)).eq(self.makeups.counts(even.range(b)));
            let chunks = |stage: usize| (0..c.chunks).map(move |chunk| chunk * stages + stage);
            largest.extend(
                (1..stages).filter(|stage| *stage == 1 || chunks(*stage).any(|piece| differ(piece, piece - 1))),
            );
        } else {
            largest.push(even.longer().start % stages);
        }
        largest.sort_unstable();
        largest.dedup();
        largest
    }

    fn bytes_of(&self, c: &Candidate, pieces: &Pieces, even: EvenPieces, stage: usize, list: Option<&[Action]>) -> f64 {
        let stages = c.size(Axis::Pipe);
        let measured = &pieces.measured;
        let framework = &self.problem.framework;
        let all = stages * c.chunks;
        let microbatches = c.microbatches(self.problem.global_batch);
        let mut known: Option<((usize, Range<usize>), Segments)> = None;
        let mut chunks = Vec::with_capacity(c.chunks);
        let mut states = 0.0;
        for chunk in 0..c.chunks {
            let piece = chunk * stages + stage;
            let blocks = if measured.is_mixed() { even.range(piece) } else { 0..even.blocks_of(piece) };
            let place = if piece == 0 { 0 } else { 1 + usize::from(piece + 1 == all) };
            let key = (place, blocks.clone());
            let segments = match &known {
                Some((known, segments)) if *known == key => *segments,
                _ => Segments::new(self, c, pieces, &measured.places[place], blocks.clone()),
            };
            known = Some((key, segments));
            states += self.states(c, measured.places[place].elements.each_ref().map(|line| line.of(blocks.clone())));
            chunks.push(segments);
        }
        // What is scattered in every pass takes the place of other gradients on their way.
        let unknown = pieces.of_any_data && c.zero == Zero::Gradients;
        let segments = pieces.whole.is_some();
        let puts_off = c.schedule == Schedule::ZeroBubble;
        let slack = if segments { SEGMENTS } else { 0.0 };
        if framework.is_own() {
            return states + allocated(c, microbatches, stage, &chunks, unknown) * (1.0 - slack);
        }
        // What a single stage has at most it may have in its update, when no microbatch is in flight.
        let in_update = c.size(Axis::Pipe) == 1 && !alone(c, microbatches);
        let unknown = unknown || segments && puts_off || in_update;
        let living = match list {
            Some(list) => living_along(list, &chunks, unknown),
            None => living(c, microbatches, stage, &chunks, unknown),
        };
        let living = states + living * (1.0 - slack);
        living * framework.allocator_factor + framework.reserved_on(self.problem.device_memory) as f64
    }

    /// Seconds in which the optimizer's states of weights come from the host's memory and go back, one copy after another.
    pub(super) fn copies(&self, c: &Candidate, elements: [f64; Elements::ALL.len()]) -> f64 {
        let Some(bandwidth) = self.problem.host_bandwidth else { return 0.0 };
        let [of_products, of_experts, ..] = elements;
        let states = self.problem.framework.states;
        let optimizer = |replicas: f64| {
            states.held(c.zero, replicas, true) - states.without_optimizer().held(c.zero, replicas, true)
        };
        let copied =
            of_products * optimizer(replicas(c, AxisSet::EMPTY)) + of_experts * optimizer(replicas(c, c.experts_over));
        2.0 * copied / bandwidth
    }

    /// Bytes of parameters, their gradients and the optimizer's states. ZeRO's shards are no smaller than this, being equally
    /// long.
    fn states(&self, c: &Candidate, elements: [f64; Elements::ALL.len()]) -> f64 {
        let [of_products, of_experts, others, pruned, kept, untrained] = elements;
        let of_experts_over = replicas(c, c.experts_over);
        let replicas = replicas(c, AxisSet::EMPTY);
        let framework = &self.problem.framework;
        // Of states in the host's memory a few are on the device.
        let on_device = |states: StateBytes| if c.bucket.is_some() { states.without_optimizer() } else { states };
        let states = on_device(framework.states);
        let vectors = on_device(framework.vector_states());
        let matrix = |shares| states.held(c.zero, replicas, shares);
        // Tables of positions are among the others, vectors are most of them.
        let other = matrix(false).min(vectors.held(c.zero, replicas, false));
        let expert = states.held(c.zero, of_experts_over, true);
        let weight = states.weight as f64;
        // Of what is kept a rank knows the places, too.
        let of_kept = matrix(true) - weight + INDEX_BYTES as f64;
        let followed = vectors.without_optimizer().held(c.zero, replicas, false);
        of_products * matrix(true)
            + of_experts * expert
            + others * other
            + pruned * weight
            + kept * of_kept
            + untrained * followed
    }
}

/// Replicas of weights: ranks of the batch and context axes, without the axes over which the weights are spread.
fn replicas(c: &Candidate, spread: AxisSet) -> f64 {
    let axes = Axis::BATCH.into_iter().chain([Axis::Context]).filter(|axis| !spread.contains(*axis));
    axes.map(|axis| c.size(axis)).product::<usize>() as f64
}

/// Bytes that passes allocate: storages that live from pass to pass for as many microbatches as have them at once, and the
/// most of the others.
fn allocated(c: &Candidate, microbatches: usize, stage: usize, chunks: &[Segments], unknown: bool) -> f64 {
    let is_alone = alone(c, microbatches);
    let mut kept = 0.0;
    let mut most = 0.0_f64;
    for (chunk, segments) in chunks.iter().enumerate() {
        let copies = copies(c, microbatches, stage, chunk);
        let lives: f64 = segments.lives.iter().zip(copies).map(|(bytes, copies)| bytes * copies as f64).sum();
        if is_alone {
            kept += segments.lives[Life::Step as usize];
            most = most.max(if unknown { segments.in_flight() } else { segments.most_alone });
        } else {
            kept += lives;
            if !unknown {
                most = most.max(segments.most);
            }
        }
    }
    kept + most
}

/// Bytes that live at once: when the stage turns for the first time, all microbatches that it has gone forward with are in
/// flight, and one of them goes backward.
fn living(c: &Candidate, microbatches: usize, stage: usize, chunks: &[Segments], unknown: bool) -> f64 {
    let p = c.size(Axis::Pipe);
    let v = c.chunks;
    let m = microbatches;
    let open = match c.schedule {
        // What all microbatches in flight may have is reserved.
        Schedule::MessageDriven => return allocated(c, microbatches, stage, chunks, unknown),
        Schedule::Gpipe => m,
        _ if v > 1 => (2 * (p - stage - 1) + (v - 1) * p + 1).min(m * v),
        _ => (p - stage).min(m),
    };
    let least = chunks.iter().map(Segments::in_flight).fold(f64::INFINITY, f64::min);
    let step: f64 = chunks.iter().map(|segments| segments.lives[Life::Step as usize]).sum();
    let turning = chunks.last().map_or(0.0, |last| if unknown { last.in_flight() } else { last.most_alone });
    step + (open - 1) as f64 * least + turning
}

/// The same along the passes of the stage: what the microbatches in flight have that are forward, or of which weight gradients
/// are put off, and what one of them has that goes backward.
fn living_along(list: &[Action], chunks: &[Segments], unknown: bool) -> f64 {
    let mut now = 0.0_f64;
    let mut most = 0.0_f64;
    for action in list {
        let segments = &chunks[action.chunk];
        let [in_flight, late, put_off] =
            [Life::InFlight, Life::Late, Life::PutOff].map(|life| segments.lives[life as usize]);
        match action.pass {
            Pass::Forward => now += in_flight + late,
            Pass::Backward => {
                let turning = if unknown { 0.0 } else { segments.most_alone - segments.in_flight() };
                most = most.max(now + turning.max(0.0));
                now += put_off - in_flight;
            }
            Pass::WeightGradient => now -= put_off + late,
        }
        most = most.max(now);
    }
    most + chunks.iter().map(|segments| segments.lives[Life::Step as usize]).sum::<f64>()
}

/// Whether a rank has one microbatch at a time, so that all its storages share buffers.
fn alone(c: &Candidate, microbatches: usize) -> bool {
    let one = c.schedule != Schedule::Gpipe || microbatches == 1;
    c.size(Axis::Pipe) == 1 && c.schedule != Schedule::MessageDriven && one
}

/// By [`Life`]: how many microbatches there are at once.
fn copies(c: &Candidate, microbatches: usize, stage: usize, chunk: usize) -> [usize; Life::ALL.len()] {
    let p = c.size(Axis::Pipe);
    let v = c.chunks;
    let m = microbatches;
    let in_flight = match c.schedule {
        Schedule::Gpipe => m,
        Schedule::MessageDriven => return [p.min(m), p.min(m), p.min(m), p.min(m), 1],
        _ if v > 1 => interleaved(p, v, m, stage, chunk),
        _ => (p - stage).min(m),
    };
    [in_flight, p.min(m), (stage + 1).min(m), 1, 1]
}

/// Most microbatches of a chunk between forward and backward pass. Forward passes go through groups of as many microbatches as
/// there are stages, chunk by chunk, backward passes from the last chunk to the first; once the stage has begun to turn,
/// so many are open. A chunk has most when its forward passes through a group end.
fn interleaved(p: usize, v: usize, m: usize, stage: usize, chunk: usize) -> usize {
    let group = p * v;
    let all = m * v;
    let open = (2 * (p - stage - 1) + (v - 1) * p + 1).min(all);
    let done = |passes: usize, place: usize| {
        let groups = passes.min(all) / group;
        let rest = passes.min(all) % group;
        groups * p + rest.saturating_sub(place * p).min(p)
    };
    let alive = |forward: usize| {
        let back = done(forward - open, v - 1 - chunk);
        done(forward, chunk).saturating_sub(back)
    };
    let end = (chunk + 1) * p;
    let first = open.saturating_sub(end).div_ceil(group);
    let ends = [first, first + 1].map(|groups| groups * group + end).into_iter().filter(|forward| *forward <= all);
    ends.chain([open]).map(alive).max().unwrap_or(0)
}

impl Segments {
    /// What a microbatch has between its forward and its backward pass.
    fn in_flight(&self) -> f64 {
        self.lives[Life::InFlight as usize] + self.lives[Life::Late as usize]
    }
}

/// What a piece holds whose blocks recomputation may join to segments.
#[derive(Clone, Copy)]
struct Segments {
    lives: [f64; Life::ALL.len()],
    most: f64,
    most_alone: f64,
}

impl Segments {
    fn new(bounds: &Bounds, c: &Candidate, pieces: &Pieces, place: &Place, blocks: Range<usize>) -> Self {
        let of = |line: &Line| line.of(blocks.clone());
        let lives = place.lives.each_ref().map(of);
        let mut held = Self { lives, most: place.most_of(blocks.clone()), most_alone: of(&place.most_alone) };
        let blocks = blocks.len();
        let (Recompute::Full { every }, Some(whole)) = (c.recompute, &pieces.whole) else { return held };
        let life = Life::InFlight as usize;
        // Only segments begin with a stream that is kept; all blocks of one are made before the first gradient.
        let dropped = (blocks - blocks.div_ceil(every)) as f64 * bounds.stream_bytes(c);
        let kept = place.lives[life].more;
        // Overlap chunks may follow each other, and what has been communicated is there already: of these, none is counted.
        let made = if c.keep_communicated || c.overlap_chunks > 1 { 0 } else { every.min(blocks) };
        let again = made as f64 * (whole.places[1].lives[life].more - place.lives[life].more_at_most).max(0.0);
        held.lives[life] = (held.lives[life] - dropped).max(0.0);
        held.most = held.most.max(again);
        // What the head keeps is over by then.
        let of_blocks = (blocks as f64 * kept - dropped).max(0.0);
        let again = of_blocks + again;
        // Where the weights of a block come together, segments gather them at other times.
        let together = bounds.problem.framework.gathers_blocks;
        held.most_alone = if together { again } else { (held.most_alone - dropped).max(again) };
        // Beside experts one overlap chunk may be through a segment before the next one begins: at once is sure what one has.
        if c.overlap_chunks > 1 && bounds.problem.by_work.has_experts() {
            let chunks = c.overlap_chunks as f64;
            let in_flight = held.in_flight();
            held.most /= chunks;
            held.most_alone = in_flight.min(held.most_alone) + (held.most_alone - in_flight).max(0.0) / chunks;
        }
        held
    }
}

impl Bounds<'_> {
    /// Bytes of the residual stream of a microbatch on a rank.
    fn stream_bytes(&self, c: &Candidate) -> f64 {
        let size = |axis: Axis| c.size(axis) as f64;
        let scattered =
            c.linear == quadrille_spec::Linear::Summa || c.activations == quadrille_spec::Activations::Scattered;
        let rows = c.microbatch as f64 / size(Axis::Z) * self.problem.seq_len as f64 / size(Axis::Context);
        let cut = if scattered { size(Axis::X) * size(Axis::Y) } else { size(Axis::Y) };
        rows * self.problem.model.hidden as f64 / cut * self.problem.framework.activation_bytes as f64
    }
}
