//! Bytes that a rank allocates at least.

use quadrille_spec::{Axis, ElementType, EvenPieces, Recompute, Schedule, Zero};

use super::holdings::Life;
use super::measured::{Elements, Line, Place};
use super::{Bounds, Pieces, even};
use crate::native::Candidate;

impl Bounds<'_> {
    /// Bytes that the rank of a candidate's program which allocates most allocates at least.
    pub fn bytes(&self, c: &Candidate, pieces: &Pieces) -> u64 {
        let (stages, even) = (c.size(Axis::Pipe), even(self.problem, c));
        let (last, longest) = (stages - 1, even.longer().start % stages);
        // Where weight gradients are put off, the last but one stage puts most off beside the last.
        let putting_off = if c.schedule == Schedule::ZeroBubble { last.saturating_sub(1) } else { last };
        let mut stages = [0, last, longest, putting_off];
        stages.sort_unstable();
        let mut most = 0.0_f64;
        for (at, stage) in stages.into_iter().enumerate() {
            if at == 0 || stages[at - 1] != stage {
                most = most.max(self.bytes_of(c, pieces, even, stage));
            }
        }
        most as u64
    }

    fn bytes_of(&self, c: &Candidate, pieces: &Pieces, even: EvenPieces, stage: usize) -> f64 {
        let (stages, measured) = (c.size(Axis::Pipe), &pieces.measured);
        let (all, microbatches) = (stages * c.chunks, c.microbatches(self.problem.global_batch));
        let is_alone = alone(c, microbatches);
        let unknown = pieces.of_any_data && c.zero == Zero::Gradients;
        let (mut kept, mut most, mut blocks_here) = (0.0, 0.0_f64, 0);
        let mut known: Option<((usize, usize), Segments)> = None;
        for chunk in 0..c.chunks {
            let piece = chunk * stages + stage;
            let blocks = even.blocks_of(piece);
            let place = if piece == 0 { 0 } else { 1 + usize::from(piece + 1 == all) };
            let segments = match &known {
                Some((key, segments)) if *key == (place, blocks) => *segments,
                _ => Segments::new(self, c, pieces, &measured.places[place], blocks),
            };
            known = Some(((place, blocks), segments));
            blocks_here += blocks;
            let copies = copies(c, microbatches, stage, chunk);
            let lives: f64 = segments.lives.iter().zip(copies).map(|(bytes, copies)| bytes * copies as f64).sum();
            match is_alone {
                true => {
                    let [in_flight, late, _, _, step] = segments.lives;
                    kept += step;
                    most = most.max(if unknown { in_flight + late } else { segments.most_alone });
                }
                // What is scattered in every pass takes the place of other gradients on their way.
                _ if unknown => kept += lives,
                false => (kept, most) = (kept + lives, most.max(segments.most)),
            }
        }
        let place = if stage == 0 { 0 } else { 1 + usize::from(stage + 1 == stages) };
        let states = blocks_here as f64 * states(c, &measured.block) + states(c, &measured.ends[place]);
        states + kept + most
    }
}

/// Whether a rank has one microbatch at a time, so that all its storages share buffers.
fn alone(c: &Candidate, microbatches: usize) -> bool {
    let one = c.schedule != Schedule::Gpipe || microbatches == 1;
    c.size(Axis::Pipe) == 1 && c.schedule != Schedule::MessageDriven && one
}

/// By [`Life`]: how many microbatches there are at once.
fn copies(c: &Candidate, microbatches: usize, stage: usize, chunk: usize) -> [usize; Life::ALL.len()] {
    let (p, v, m) = (c.size(Axis::Pipe), c.chunks, microbatches);
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
    let (group, all) = (p * v, m * v);
    let open = (2 * (p - stage - 1) + (v - 1) * p + 1).min(all);
    let done = |passes: usize, place: usize| {
        let (groups, rest) = (passes.min(all) / group, passes.min(all) % group);
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

/// What a piece holds whose blocks recomputation may join to segments.
#[derive(Clone, Copy)]
struct Segments {
    lives: [f64; Life::ALL.len()],
    most: f64,
    most_alone: f64,
}

impl Segments {
    fn new(bounds: &Bounds, c: &Candidate, pieces: &Pieces, place: &Place, blocks: usize) -> Self {
        let at = |line: &Line| line.at(blocks);
        let lives = place.lives.map(|line| at(&line));
        let mut held = Self { lives, most: at(&place.most), most_alone: at(&place.most_alone) };
        let (Recompute::Full { every }, Some(whole)) = (c.recompute, &pieces.whole) else { return held };
        let life = Life::InFlight as usize;
        // Only segments begin with a stream that is kept; all blocks of one are made before the first gradient.
        let dropped = (blocks - blocks.div_ceil(every)) as f64 * bounds.stream_bytes(c);
        let kept = place.lives[life].more;
        // Overlap chunks may follow each other, and what has been communicated is there already: of these, none is counted.
        let made = if c.keep_communicated || c.overlap_chunks > 1 { 0 } else { every.min(blocks) };
        let again = made as f64 * (whole.places[1].lives[life].more - kept).max(0.0);
        held.lives[life] = (held.lives[life] - dropped).max(0.0);
        held.most = held.most.max(again);
        held.most_alone = (held.most_alone - dropped).max(held.lives[life] + again);
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
        rows * self.problem.model.hidden as f64 / cut * ElementType::F32.bytes() as f64
    }
}

/// Bytes of parameters, their gradients and both moments. ZeRO's shards are no smaller than this, being equally long.
fn states(c: &Candidate, elements: &Elements) -> f64 {
    let (Elements { of_products, others }, replicas) = (*elements, (c.size(Axis::Data) * c.size(Axis::Context)) as f64);
    let all = of_products + others;
    let elements = match c.zero {
        Zero::Off => 4.0 * all,
        Zero::Optimizer => 2.0 * all + 2.0 * all / replicas,
        Zero::Gradients => all + others + (of_products + 2.0 * all) / replicas,
    };
    elements * ElementType::F32.bytes() as f64
}
