//! Memory of a step: of the rank of each stage, and of the one that needs most.
//!
//! A rank holds its states; what microbatches in flight keep for their backward passes; and what the passes of one of
//! them take beside that, followed from its forward into its backward pass.

use quadrille_spec::{KeepWeights, Recompute, Schedule, Zero};

use super::footprint::Footprint;
use super::operations::LinearSizes;
use super::parameters::{Kind, Parameter};
use super::step::Step;
use super::{Block, Candidate, Memory, Problem};

/// A piece of layers that stands for those of a stage.
struct Piece {
    blocks: i64,
    is_first: bool,
    is_last: bool,
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
        let all = self.stages.candidates().map(|stage| self.memory_of(stage, &elements));
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
    fn bytes(&self, elements: u64) -> i64 {
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
        let (is_first, is_last) = (self.stages.is_first(stage), self.stages.is_last(stage));
        let (blocks, chunks) = (self.stages.blocks_on(stage) as i64, self.stages.chunks as i64);
        let piece = Piece { blocks: blocks / chunks + i64::from(blocks % chunks != 0), is_first, is_last };
        let in_flight = self.in_flight(stage);
        let pieces = [is_first, is_last].map(i64::from);
        // Of an interleaved stage one piece has the embedding; of others in flight each is as likely. The piece with the head
        // goes back at once.
        let amid = Piece { blocks, is_first: false, is_last: false };
        let ends = pieces[0] * (self.entry(true).net() - self.entry(false).net())
            + pieces[1] * i64::from(chunks == 1) * (self.stream() + self.ends()[1].memory[0].net());
        let of_stage = self.kept(&amid) + (chunks - 1) * (self.entry(false).net() - self.stream()) + ends;
        let others = ((in_flight - 1.0).max(0.0) * of_stage as f64 / chunks as f64) as i64;
        let run = self.run(&piece);
        let first_receives = if is_first { 0 } else { 2 * self.message() };
        let posted = first_receives + if is_last { 0 } else { self.message() };
        let most = others + run.most() + self.block.ahead + posted + self.put_off(stage, &piece);
        (others + self.kept(&piece), most)
    }

    /// Microbatches (of an interleaved pipeline: pairs of microbatch and piece) between forward and backward pass.
    fn in_flight(&self, stage: usize) -> f64 {
        let (p, m, v) = (self.stages.stages, self.microbatches, self.stages.chunks);
        (match self.c.schedule {
            Schedule::Gpipe => m,
            Schedule::MessageDriven => p.min(m),
            Schedule::Interleaved if v > 1 => (2 * (p - stage - 1) + (v - 1) * p + 1).min(m * v),
            _ => (p - stage).min(m),
        }) as f64
    }

    /// The residual stream as a piece begins with it.
    fn entry(&self, is_first: bool) -> Footprint {
        let sizes = &self.block.sizes;
        match is_first {
            true => self.ends()[0].memory[0],
            false if sizes.gathers_received_again() => Footprint::held(self.message()),
            false => Footprint::held(self.stream()),
        }
    }

    /// Bytes that a microbatch keeps of a piece when its forward pass is over and sent.
    fn kept(&self, piece: &Piece) -> i64 {
        let blocks = piece.blocks * self.block.block.memory[0].net() - self.dropped(piece.blocks);
        let end = if piece.is_last { self.ends()[1].memory[0].net() } else { -self.stream() };
        self.entry(piece.is_first).net() + blocks + end
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
        let [deferred_block, deferred_table] = self.scattered_memory();
        let forward = block.memory[0].leaving(0);
        let backward = deferred_block.onto(block.memory[1]);
        let (longest, _) = self.segment(piece.blocks);
        let again = (longest - 1) * self.block.amid_bytes;
        let end = match piece.is_last {
            true => head.memory[0].then(1, deferred_table.onto(head.memory[1])),
            // The gradient of what has been sent is received.
            false => Footprint::held(self.stream()),
        };
        let begin = if piece.is_first { deferred_table.onto(embedding.memory[1]) } else { Footprint::default() };
        let backward = backward.then(piece.blocks, begin).above(again);
        let dropped = Footprint::held(-self.dropped(piece.blocks));
        let turned = dropped.then(1, end.then(1, backward));
        self.entry(piece.is_first).then(1, forward.then(piece.blocks, turned))
    }

    /// Bytes of product inputs and output gradients of microbatches whose weight gradients are put off. Stage `r` puts off
    /// those of `r` microbatches; one more is between its passes.
    fn put_off(&self, stage: usize, piece: &Piece) -> i64 {
        if self.c.schedule != Schedule::ZeroBubble {
            return 0;
        }
        let s = &self.block.sizes;
        let needed = |linear: &LinearSizes| match s.panels {
            Some(_) => s.inner_rows * (linear.inputs * s.y / s.x + linear.outputs),
            None => s.rows * (linear.inputs + linear.outputs),
        };
        let block: u64 = s.linears().iter().map(needed).sum();
        let end = match s.patches {
            false => s.rows * (s.hidden + s.logits),
            true => s.stream_rows * (s.stream_cols + s.logits),
        };
        let head = if piece.is_last { self.bytes(end) } else { 0 };
        let one = piece.blocks * self.bytes(block) + head;
        stage.min(self.microbatches - 1) as i64 * one + (one - self.kept(piece)).max(0)
    }

    /// What ZeRO's scattering of gradients changes in the backward passes of a block and of a table.
    fn scattered_memory(&self) -> [Deferred; 2] {
        if self.sharding.zero != Zero::Gradients {
            return [Deferred::default(); 2];
        }
        let sizes = &self.block.sizes;
        let block =
            sizes.linears().iter().map(|linear| self.deferred(linear.tile())).fold(Deferred::default(), Deferred::and);
        [block, self.deferred(sizes.table)]
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
        match (self.c.overlap.reduce_scatter, sizes.z) {
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
