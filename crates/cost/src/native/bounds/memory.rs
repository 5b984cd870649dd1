//! Bytes that a rank allocates at least.

use quadrille_spec::{Axis, ElementType, Recompute, Schedule, Zero};

use super::holdings::Life;
use super::measured::{Line, Place};
use super::{Bounds, Pieces, even};
use crate::native::Candidate;

impl Bounds<'_> {
    /// Bytes that the rank of a candidate's program which allocates most allocates at least.
    pub fn bytes(&self, c: &Candidate, pieces: &Pieces) -> u64 {
        let stages = c.size(Axis::Pipe);
        let longest = even(self.problem, c).longer().start % stages;
        let among = [0, 1, longest, stages.saturating_sub(2), stages - 1];
        among.into_iter().filter(|stage| *stage < stages).map(|stage| self.bytes_of(c, pieces, stage)).max().unwrap_or(0)
    }

    fn bytes_of(&self, c: &Candidate, pieces: &Pieces, stage: usize) -> u64 {
        let (stages, even) = (c.size(Axis::Pipe), even(self.problem, c));
        let all = stages * c.chunks;
        let microbatches = c.microbatches(self.problem.global_batch);
        let (mut kept, mut most, mut blocks_here) = (0.0, 0.0_f64, 0);
        for chunk in 0..c.chunks {
            let piece = chunk * stages + stage;
            let blocks = even.blocks_of(piece);
            let segments = Segments::new(self, c, pieces, pieces.place(piece, all), blocks);
            blocks_here += blocks;
            if alone(c, microbatches) {
                most = most.max(segments.most_alone);
                continue;
            }
            let copies = copies(c, microbatches, stage, chunk);
            kept += segments.lives.iter().zip(copies).map(|(bytes, copies)| bytes * copies as f64).sum::<f64>();
            most = most.max(segments.most);
        }
        let ends = [(0, stage == 0), (pieces.measured.ends.len() - 1, stage + 1 == stages && stages > 1)];
        let ends = ends.into_iter().filter(|(_, here)| *here).map(|(place, _)| &pieces.measured.ends[place]);
        let states: u64 = blocks_here as u64 * states(c, &pieces.measured.block)
            + ends.map(|parameters| states(c, parameters)).sum::<u64>();
        states + (kept + most) as u64
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
        _ if v > 1 => {
            // Of all pieces' passes before the first one comes back, those of this piece.
            let open = (2 * (p - stage - 1) + (v - 1) * p + 1).min(m * v);
            open / (p * v) * p + (open % (p * v)).saturating_sub(chunk * p).min(p)
        }
        _ => (p - stage).min(m),
    };
    [in_flight, p.min(m), (stage + 1).min(m), 1, 1]
}

/// What a piece holds whose blocks recomputation may join to segments.
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
        let scattered = c.linear == quadrille_spec::Linear::Summa || c.activations == quadrille_spec::Activations::Scattered;
        let rows = c.microbatch as f64 / size(Axis::Z) * self.problem.seq_len as f64 / size(Axis::Context);
        let cut = if scattered { size(Axis::X) * size(Axis::Y) } else { size(Axis::Y) };
        rows * self.problem.model.hidden as f64 / cut * ElementType::F32.bytes() as f64
    }
}

/// Bytes of parameters of so many elements, their gradients and both moments. ZeRO's shards are equally long.
fn states(c: &Candidate, parameters: &[(u64, bool)]) -> u64 {
    let replicas = (c.size(Axis::Data) * c.size(Axis::Context)) as u64;
    let zero = if replicas == 1 { Zero::Off } else { c.zero };
    let elements = parameters.iter().map(|(elements, by_product)| {
        let shard = if zero == Zero::Off { *elements } else { elements.div_ceil(replicas) };
        let whole = if zero == Zero::Off { *elements } else { shard * replicas };
        let gradient = if zero == Zero::Gradients && *by_product { shard } else { whole };
        whole + gradient + 2 * shard
    });
    elements.sum::<u64>() * ElementType::F32.bytes()
}
