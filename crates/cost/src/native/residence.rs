//! Memory of a step: of the rank of each stage, and of the one that needs most.
//!
//! A rank holds its states; what microbatches in flight keep for their backward passes; and what the passes of one of
//! them take beside that, followed from its forward into its backward pass.
//!
//! Held against the memory of the step program, which follows every value (15,000 random layouts with all switches, of
//! models of few and narrow blocks, where rounding up weighs most; `tests/native/memory.rs` holds a part of them):
//!
//! | | against the program |
//! |---|---|
//! | parameters, gradients, states of the optimizer | equal |
//! | one stage of several blocks, without switches and z | equal but for the ends of the model: more |
//! | GPipe and 1F1B without switches | equal or more |
//! | GPipe, 1F1B, any switches | 2 % of layouts below, by 6 % at most; median +1 to +2 % |
//! | interleaved | 2 % below, by 11 % at most; median +2 % |
//! | ZB-H1 | 1 % below, by 6 % at most; median +4 % |
//! | message-driven | 4 % below, by 11 % at most; median +2 % |
//!
//! What is below the program has overlap chunks, where a value that all chunks share lives until the last, or SUMMA
//! with communication-aware recomputation. What is far above it (up to 2.5 times) has one of these, or puts off weight
//! gradients that are scattered.

use std::ops::Range;

use quadrille_spec::{KeepWeights, Recompute, Schedule, Zero};

use super::block::Passes;
use super::footprint::Footprint;
use super::operations::LinearSizes;
use super::parameters::{Kind, Parameter};
use super::step::Step;
use super::{Block, Candidate, Memory, Problem};

/// A piece of layers that stands for those of a stage.
pub(super) struct Piece {
    pub blocks: i64,
    pub is_first: bool,
    pub is_last: bool,
}

impl Problem {
    /// The memory of a rank of one stage of the pipeline (of the last, if there are fewer), from the price of the
    /// candidate's [`Block`].
    pub fn memory_of_stage(&self, c: &Candidate, block: &Block, stage: usize) -> Memory {
        let step = Step::new(self, c, block);
        step.memory_of(stage.min(step.stages.stages - 1), &step.state_elements())
    }
}

impl Step<'_> {
    /// The memory of the rank that needs most.
    pub fn memory(&self) -> Memory {
        let elements = self.state_elements();
        // Where weight gradients are put off, the last but one stage puts most off beside the last.
        let putting_off = self.stages.stages.checked_sub(2).filter(|_| self.c.schedule == Schedule::ZeroBubble);
        let stages = self.stages.candidates().chain(putting_off);
        let all = stages.map(|stage| self.memory_of(stage, &elements));
        all.fold(Memory::default(), |most, each| if each.total() > most.total() { each } else { most })
    }

    /// The memory of a rank of a stage.
    fn memory_of(&self, stage: usize, elements: &[[u64; 3]; 3]) -> Memory {
        let framework = &self.problem.framework;
        let states = framework.states;
        let owners = self.owners(stage);
        let [parameters, gradients, updated] =
            [0, 1, 2].map(|state| owners.iter().zip(elements).map(|(count, each)| count * each[state]).sum::<u64>());
        let (kept, most) = self.passes(stage);
        let activations = kept.max(0) as u64;
        let mut memory = Memory {
            stage,
            parameters: parameters * states.weight,
            gradients: gradients * states.gradient,
            optimizer: updated * states.optimizer,
            activations,
            buffers: self.kept_weights(stage) + (most.max(0) as u64).saturating_sub(activations),
            framework: 0,
        };
        let lost = memory.total() as f64 * (framework.allocator_factor - 1.0);
        memory.framework = framework.reserved_bytes + lost.ceil() as u64;
        memory
    }

    /// Elements of parameters, of gradients and of what the optimizer updates, by what they belong to: see
    /// [`Step::owners`].
    fn state_elements(&self) -> [[u64; 3]; 3] {
        self.sums(|sum: &mut [u64; 3], parameter, count| {
            let held = self.sharding.held(parameter);
            for (sum, elements) in sum.iter_mut().zip([held.padded, held.gradient, held.shard]) {
                *sum += count * elements;
            }
        })
    }

    /// Bytes of weights that stay gathered over z.
    fn kept_weights(&self, stage: usize) -> u64 {
        let sizes = &self.block.sizes;
        if self.c.keep_weights == KeepWeights::Use || sizes.z == 1 {
            return 0;
        }
        let block: u64 = sizes.linears().iter().map(LinearSizes::tile).sum();
        let elements = self.stages.blocks_on(stage) as u64 * block + self.tables(stage) as u64 * sizes.table;
        elements * self.problem.framework.states.gathered_weight
    }

    /// Bytes of activations of so many elements in every overlap chunk.
    pub(super) fn bytes(&self, elements: u64) -> i64 {
        (elements * self.block.sizes.chunks * self.problem.framework.activation_bytes) as i64
    }

    fn message(&self) -> i64 {
        self.bytes(self.block.sizes.message())
    }

    fn stream(&self) -> i64 {
        self.bytes(self.block.sizes.stream())
    }

    /// Bytes that microbatches in flight keep, and the most that there is with what runs.
    fn passes(&self, stage: usize) -> (i64, i64) {
        if self.stages.chunks > 1 {
            return self.interleaved(stage);
        }
        let piece = self.piece(stage, 0);
        let in_flight = self.in_flight(stage) as i64;
        if self.c.schedule == Schedule::MessageDriven {
            return self.reserved(&piece, in_flight);
        }
        let kept = self.kept(&piece);
        // The head is followed by its backward pass; only GPipe keeps what it makes.
        let others = (in_flight - 1).max(0) * kept;
        let first_receives = if piece.is_first { 0 } else { 2 * self.message() };
        let posted = first_receives + if piece.is_last { 0 } else { self.message() };
        // Stage `r` puts off the weight gradients of `r` microbatches.
        let [of_block, of_head, _] = self.put_off();
        let of_piece = piece.blocks * of_block + if piece.is_last { of_head } else { 0 };
        let waiting = stage.min(self.microbatches - 1) as i64 * of_piece;
        (others + kept, others + self.run(&piece).most() + self.block.ahead + posted + waiting)
    }

    /// A piece of a stage.
    fn piece(&self, stage: usize, chunk: usize) -> Piece {
        let index = chunk * self.stages.stages + stage;
        let (is_first, is_last) = (index == 0, index + 1 == self.stages.pieces());
        Piece { blocks: self.stages.blocks_of(index) as i64, is_first, is_last }
    }

    /// The same of an interleaved stage. Forward passes go through groups of as many microbatches as there are stages,
    /// piece by piece; backward passes from the last piece to the first. What is in flight grows and shrinks evenly while
    /// both stay in their pieces, so it is most where one of them begins a new one.
    fn interleaved(&self, stage: usize) -> (i64, i64) {
        let (p, v) = (self.stages.stages, self.stages.chunks);
        let (group, all) = (p * v, self.microbatches * v);
        let in_flight = self.in_flight(stage);
        // Passes through the pieces at some places of a group's way, of so many passes.
        let done = |passes: usize, places: Range<usize>| {
            let (groups, rest) = (passes.min(all) / group, passes.min(all) % group);
            groups * p * places.len() + rest.saturating_sub(places.start * p).min(p * places.len())
        };
        let of = |turned: usize, chunks: Range<usize>| {
            let back = done(turned, v - chunks.end..v - chunks.start);
            done(in_flight + turned, chunks).saturating_sub(back) as i64
        };
        // The first and the last chunk may have an end of the model, and some chunks that follow each other a block more.
        let longer = self.stages.longer_on(stage);
        let amid = |chunk| self.kept(&Piece { is_first: false, is_last: false, ..self.piece(stage, chunk) });
        let ends = [0, v - 1].map(|chunk| (chunk, self.kept(&self.piece(stage, chunk)) - amid(chunk)));
        let short = (0..v).find(|chunk| !longer.contains(chunk));
        let [short, long] = [short, Some(longer.start).filter(|_| !longer.is_empty())].map(|chunk| chunk.map(amid));
        let (short, long) = (short.or(long).unwrap_or(0), long.or(short).unwrap_or(0));
        let kept_after = |turned: usize| {
            let ends = ends.iter().map(|(chunk, more)| more * of(turned, *chunk..chunk + 1)).sum::<i64>();
            short * of(turned, 0..v) + (long - short) * of(turned, longer.clone()) + ends
        };
        let begins = (0..v).flat_map(|place| [place * p, place * p + p - in_flight % p]);
        let kept = match short == long && ends.iter().all(|(_, more)| *more == 0) {
            true => kept_after(0),
            false => begins.map(kept_after).max().unwrap_or(0),
        };
        let inner = [longer.start, longer.end, longer.start.wrapping_sub(1), 1];
        let chunks = [0, v - 1].into_iter().chain(inner.into_iter().filter(|chunk| *chunk < v));
        let pieces = chunks.map(|chunk| self.piece(stage, chunk));
        let beside = pieces.map(|piece| self.run(&piece).most() - self.kept(&piece));
        (kept, kept + beside.max().unwrap_or(0) + self.block.ahead + 3 * self.message())
    }

    /// The same where what is kept or sent of so many microbatches is reserved: of the rest there is one at a time.
    fn reserved(&self, piece: &Piece, microbatches: i64) -> (i64, i64) {
        let [embedding, head] = self.ends();
        let [deferred_block, deferred_table] = self.scattered_memory();
        let sent = if piece.is_last { 0 } else { self.stream() + self.message() };
        let kept = self.kept(piece) + sent + if piece.is_first { 0 } else { self.message() };
        let again = (self.segment(piece.blocks).0 - 1) * self.block.amid_bytes;
        let block = &self.block.block;
        let backward = deferred_block.onto(block.memory_beside);
        let left = backward.net().max(0);
        let mut meanwhile = block.memory[0].most() - block.memory[0].net();
        let mut turned = 0;
        if piece.is_last {
            let turning = deferred_table.onto(head.memory_beside);
            meanwhile = meanwhile.max(head.memory[0].most() - head.memory[0].net()).max(turning.most());
            turned = turning.net().max(0);
        }
        // With the residual stream's gradient.
        meanwhile = meanwhile.max(turned + self.stream() + backward.most() + (piece.blocks - 1).max(0) * left + again);
        if piece.is_first {
            let begin = deferred_table.onto(embedding.memory_beside).most();
            meanwhile = meanwhile.max(turned + self.stream() + begin + piece.blocks * left);
        }
        (microbatches * kept, microbatches * kept + meanwhile + self.block.ahead)
    }

    /// Microbatches (of an interleaved pipeline: pairs of microbatch and piece) between forward and backward pass.
    fn in_flight(&self, stage: usize) -> usize {
        let (p, m, v) = (self.stages.stages, self.microbatches, self.stages.chunks);
        match self.c.schedule {
            Schedule::Gpipe => m,
            Schedule::MessageDriven => p.min(m),
            Schedule::Interleaved if v > 1 => (2 * (p - stage - 1) + (v - 1) * p + 1).min(m * v),
            _ => (p - stage).min(m),
        }
    }

    /// The residual stream as a piece begins with it.
    fn entry(&self, piece: &Piece) -> Footprint {
        let again = self.block.sizes.gathers_received_again() && piece.blocks > 0;
        match piece.is_first {
            true => self.ends()[0].memory[0],
            false if again => Footprint::held(self.message()),
            false => Footprint::held(self.stream()),
        }
    }

    /// Bytes that a microbatch keeps of a piece when its forward pass is over and sent.
    fn kept(&self, piece: &Piece) -> i64 {
        let one = |passes: &Passes| passes.memory[0].net() - passes.shared[0];
        let [embedding, head] = self.ends();
        let begin = if piece.is_first { one(embedding) } else { self.entry(piece).net() };
        let blocks = piece.blocks * one(&self.block.block) - self.dropped(piece.blocks);
        begin + blocks + if piece.is_last { one(head) } else { -self.stream() }
    }

    /// Bytes of residual streams amid segments of recomputation, which are not kept.
    fn dropped(&self, blocks: i64) -> i64 {
        let segments = self.segment(blocks).1;
        if self.block.sizes.kept().output { 0 } else { (blocks - segments) * self.stream() }
    }

    /// Blocks of the longest segment of recomputation in a piece, and how many segments there are.
    fn segment(&self, blocks: i64) -> (i64, i64) {
        match self.c.recompute {
            Recompute::Full { every } => {
                let every = every as i64;
                (every.min(blocks).max(1), blocks / every + i64::from(blocks % every != 0))
            }
            Recompute::None | Recompute::Selective => (1, blocks),
        }
    }

    /// A microbatch's forward pass through a piece, then its backward pass.
    fn run(&self, piece: &Piece) -> Footprint {
        let block = &self.block.block;
        let [embedding, head] = self.ends();
        let puts_off = self.c.schedule == Schedule::ZeroBubble;
        let [backward, turning, begin] = if puts_off {
            [block, head, embedding].map(|passes| passes.memory_apart)
        } else {
            let [deferred_block, deferred_table] = self.scattered_memory();
            [(block, deferred_block), (head, deferred_table), (embedding, deferred_table)]
                .map(|(passes, deferred)| deferred.onto(passes.memory[1]))
        };
        let (longest, _) = self.segment(piece.blocks);
        let again = (longest - 1) * self.block.amid_bytes;
        let end = match piece.is_last {
            true => head.memory[0].then(1, turning),
            // The gradient of what has been sent is received.
            false => Footprint::held(self.stream()),
        };
        let begin = if piece.is_first { begin } else { Footprint::default() };
        let begin = begin.above(self.block.carried);
        let mut backward = if piece.is_last && piece.blocks > 0 && self.block.interleaves && !puts_off {
            // The first block's collectives free the head's weight.
            let freed = Footprint::held(-head.shared[1]);
            backward.then(1, freed.then(1, backward.then(piece.blocks - 1, begin)))
        } else {
            backward.then(piece.blocks, begin)
        };
        backward = backward.above(again);
        if puts_off {
            backward = backward.then(1, self.weight_gradients(piece));
        }
        let shared = if piece.is_first { self.ends()[0].shared[0] } else { 0 } + piece.blocks * block.shared[0];
        let dropped = Footprint::held(-self.dropped(piece.blocks));
        // What the forward pass shares is given back at its end.
        let turned = match piece.is_last {
            true => dropped.then(1, end.then(1, Footprint::held(-shared)).then(1, backward)),
            false => dropped.then(1, Footprint::held(-shared).then(1, end).then(1, backward)),
        };
        self.entry(piece).then(1, block.memory[0].then(piece.blocks, turned))
    }

    /// What ZeRO's scattering of gradients changes in the backward passes of a block and of a table.
    fn scattered_memory(&self) -> [Deferred; 2] {
        if self.sharding.zero != Zero::Gradients {
            return [Deferred::default(); 2];
        }
        let sizes = &self.block.sizes;
        let mut block =
            sizes.linears().iter().map(|linear| self.deferred(linear.tile())).fold(Deferred::default(), Deferred::and);
        if sizes.chunks > 1 {
            // Whole gradients wait for the last overlap chunk.
            let waiting: i64 = sizes.linears().iter().map(|linear| self.waits_for_chunks(linear.tile())).sum();
            let of = if self.block.interleaves { &mut block.meanwhile } else { &mut block.left };
            *of += waiting;
        }
        [block, self.deferred(sizes.table)]
    }

    /// Bytes of one weight's gradient that stay for the last overlap chunk and that no meter has counted.
    fn waits_for_chunks(&self, tile: u64) -> i64 {
        let z = self.block.sizes.z;
        let bytes = self.problem.framework.states.sent_gradient as i64;
        let whole = self.sharding.held(Parameter { kind: Kind::Weight, elements: tile / z }).padded as i64;
        match (self.c.overlap.reduce_scatter && self.problem.framework.keeps_scattered, z) {
            (true, 1) | (false, 2..) => 0,
            (true, _) => bytes * tile as i64,
            (false, _) => bytes * whole,
        }
    }

    /// The same of one weight. With ORS what is scattered over data stays until the end of the backward pass, instead of
    /// what is scattered over z.
    fn deferred(&self, tile: u64) -> Deferred {
        let sizes = &self.block.sizes;
        let parameter = Parameter { kind: Kind::Weight, elements: tile / sizes.z };
        let bytes = self.problem.framework.states.sent_gradient as i64;
        let held = self.sharding.held(parameter);
        let (whole, shard) = (held.padded as i64, held.shard as i64);
        let over_z = if sizes.z > 1 { (tile + tile / sizes.z) as i64 } else { 0 };
        let keeps = self.c.overlap.reduce_scatter && self.problem.framework.keeps_scattered;
        match (keeps, sizes.z) {
            (true, _) => {
                Deferred { left: bytes * (whole + shard - over_z), meanwhile: bytes * over_z.min(whole + shard) }
            }
            (false, 1) => Deferred { left: 0, meanwhile: bytes * (whole + shard) },
            (false, _) => Deferred { left: 0, meanwhile: bytes * (whole - parameter.elements as i64 + shard) },
        }
    }
}

/// Bytes that a pass leaves more until the end of the backward pass, and that it takes more for a while.
#[derive(Debug, Clone, Copy, Default)]
struct Deferred {
    left: i64,
    meanwhile: i64,
}

impl Deferred {
    fn and(self, other: Self) -> Self {
        Self { left: self.left + other.left, meanwhile: self.meanwhile.max(other.meanwhile) }
    }

    fn onto(self, memory: Footprint) -> Footprint {
        memory.above(self.meanwhile).leaving(self.left)
    }
}
