//! What an operation computes on a rank: what ledgers count and machines charge for.

use quadrille_spec::{Attention, Axis, Coordinate};

use super::entry::Kind;
use super::kind::{AdamW, FollowLoads, Gemm, JoinHeads, Restore, Router};
use super::{BlockKind, GemmPass, GemmStorage, Operation, Panel, Product};
use crate::kept::INDEX_BYTES;
use crate::{Format, StageProgram, ValueId};

/// What an operation computes and moves on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// What is computed.
    pub computation: Computation,
    /// Bytes read from and written to memory. Every operand is read or written once: a fused kernel that keeps the rest
    /// in caches. Where an operation touches a part of an operand only, the part counts; panels count as on the rank that
    /// holds them, for which the others wait.
    pub moved: u64,
}

/// What an operation computes on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Computation {
    /// Nothing that is counted.
    None,
    /// A product.
    Product {
        /// Which of a linear layer's three.
        pass: GemmPass,
        /// Its local shape: of experts' products beside each other with the rows of all.
        product: Product,
        /// How many products these are, one for each expert, each of its own rows.
        groups: usize,
    },
    /// The core of attention.
    Attention {
        /// Whether it is its backward pass.
        backward: bool,
        /// Whether later tokens are masked.
        causal: bool,
        /// Tokens of a sequence.
        seq_len: usize,
        /// Keys that count for a query: those of its window, or of the sequence.
        keys: usize,
        /// Columns of a query and of a key.
        head_dim: usize,
        /// Columns of a value.
        value_dim: usize,
        /// Heads of queries of all the rank's sequences.
        heads: usize,
        /// Elements of the rank's output.
        outputs: usize,
    },
    /// A sweep over elements.
    Sweep {
        /// How many, as ledgers count them.
        elements: usize,
        /// Arithmetic operations for each.
        arithmetic: f64,
    },
}

impl Work {
    /// Of what only communicates.
    pub const NONE: Self = Self { computation: Computation::None, moved: 0 };

    /// FLOPs of a product (2mkn) or of attention (of a query `2 s (d + v)` forward with keys of d and values of v columns, twice
    /// that backward; s the tokens of a sequence, or of a window that is shorter; of cached attention those of the pass, to which
    /// [`crate::cached_attention_flops`] adds those before it); 0 for everything else.
    pub fn flops(&self) -> u128 {
        match self.computation {
            Computation::Product { product: Product { m, n, k, .. }, .. } => 2 * m as u128 * n as u128 * k as u128,
            Computation::Attention { backward, keys, head_dim, value_dim, outputs, .. } => {
                let queries = (outputs / value_dim) as u128;
                (if backward { 4 } else { 2 }) * keys as u128 * queries * (head_dim + value_dim) as u128
            }
            Computation::None | Computation::Sweep { .. } => 0,
        }
    }

    /// Elements that are swept over, if it is a sweep.
    pub fn swept(&self) -> Option<usize> {
        match self.computation {
            Computation::Sweep { elements, .. } => Some(elements),
            _ => None,
        }
    }
}

/// Bytes of a line of memory, as most processors and devices move them.
const LINE_BYTES: u64 = 64;

/// A rank of a stage, for which work is counted.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The stage's program.
    pub program: &'a StageProgram,
    /// The rank's coordinates.
    pub place: Coordinate,
}

impl<'a> At<'a> {
    /// The first rank of the stage.
    pub fn first(program: &'a StageProgram) -> Self {
        Self { program, place: program.grid().coordinate(0) }
    }

    /// Elements that the rank holds of a value.
    pub(super) fn elements(self, value: ValueId) -> usize {
        self.program.value(value).local_elements
    }

    fn moved(self, op: &impl Kind) -> u64 {
        op.operands().all().iter().map(|value| self.program.local_bytes(*value)).sum()
    }

    /// A sweep over a value that reads and writes all operands.
    pub(super) fn sweeps(self, op: &impl Kind, over: ValueId, arithmetic: f64) -> Work {
        let elements = self.elements(over);
        Work { computation: Computation::Sweep { elements, arithmetic }, moved: self.moved(op) }
    }

    /// A sweep that reads and writes so many elements of a value.
    pub(super) fn touches(self, value: ValueId, elements: usize, arithmetic: f64) -> Work {
        let moved = 2 * elements as u64 * self.program.element_bytes(value);
        Work { computation: Computation::Sweep { elements, arithmetic }, moved }
    }

    /// A copy of a value out of, or into, a larger one.
    pub(super) fn copies(self, value: ValueId) -> Work {
        self.touches(value, self.elements(value), 0.0)
    }

    /// Rows of a gradient are read, and the rows of a table are read and written.
    pub(super) fn adds_rows(self, gradient: ValueId) -> Work {
        let computation = Computation::Sweep { elements: self.elements(gradient), arithmetic: 1.0 };
        Work { computation, moved: 3 * self.program.local_bytes(gradient) }
    }

    /// Kept elements, swept over so many times, their places, and so many times what comes to the processor of the tile that
    /// they lie in: a line of memory for each of them, or all.
    pub(super) fn picks(self, kept: ValueId, tile: ValueId, [kept_sweeps, tile_sweeps]: [u64; 2]) -> Work {
        let elements = self.elements(kept);
        let listed = kept_sweeps * self.program.local_bytes(kept) + elements as u64 * INDEX_BYTES;
        let lines = self.program.local_bytes(tile).min(elements as u64 * LINE_BYTES);
        let computation = Computation::Sweep { elements, arithmetic: 0.0 };
        Work { computation, moved: listed + tile_sweeps * lines }
    }

    /// Reading alone, which ledgers do not count.
    pub(super) fn reads(self, value: ValueId) -> Work {
        Work { computation: Computation::None, moved: self.program.local_bytes(value) }
    }

    /// What only ranks that hold the panel count.
    pub(super) fn holds(self, panel: Panel, work: Work) -> Work {
        let holds = panel.holder(self.program.grid().size(panel.axis)) == self.place.on(panel.axis);
        match work.computation {
            Computation::Sweep { arithmetic, .. } if !holds => {
                Work { computation: Computation::Sweep { elements: 0, arithmetic }, ..work }
            }
            _ => work,
        }
    }

    pub(super) fn multiplies(self, op: &Gemm) -> Work {
        let pass = op.pass;
        let product = op.product(self.program);
        let groups = op.groups(self.program);
        Work { computation: Computation::Product { pass, product, groups }, moved: self.moved(op) }
    }

    pub(super) fn scores(self, op: &Router) -> Work {
        let pass = op.pass;
        let product = op.product(self.program);
        Work { computation: Computation::Product { pass, product, groups: 1 }, moved: self.moved(op) }
    }

    /// The rows that tokens choose of so many columns: each is read or written once at the tokens and once at the experts.
    pub(super) fn chosen_rows(self, block: BlockKind, tokens: ValueId) -> usize {
        let chosen = block.of(&self.program.model).feed_forward.experts().map_or(0, |experts| experts.per_token);
        chosen * self.elements(tokens)
    }

    /// Attention of a block whose forward result is `output`.
    pub(super) fn attends(self, op: &impl Kind, block: BlockKind, backward: bool, output: ValueId) -> Work {
        let layout = &self.program.layout;
        let attention = block.of(&self.program.model).attention;
        let Attention { head_dim, value_dim, causal, .. } = attention;
        let outputs = self.elements(output);
        let tokens = layout.seq_len / layout.grid.size(Axis::Context);
        let computation = Computation::Attention {
            backward,
            causal,
            seq_len: layout.seq_len,
            keys: attention.keys(layout.seq_len),
            head_dim,
            value_dim,
            heads: outputs / value_dim / tokens,
            outputs,
        };
        Work { computation, moved: self.moved(op) }
    }

    /// The elements of queries and keys in a value of a block's queries, keys and values.
    pub(super) fn queries_and_keys(self, block: BlockKind, qkv: ValueId) -> usize {
        self.elements(qkv) - self.groups(block, qkv) * block.of(&self.program.model).attention.value_dim
    }

    /// The elements of keys, or of queries, in such a value.
    pub(super) fn heads_normed(self, block: BlockKind, keys: bool, qkv: ValueId) -> usize {
        let of_keys = self.groups(block, qkv) * block.of(&self.program.model).attention.head_dim;
        if keys { of_keys } else { self.elements(qkv) - self.keys_and_values(block, qkv) }
    }

    /// Queries and keys, and, if they come with them, values.
    pub(super) fn joins(self, op: &JoinHeads) -> Work {
        match op.beside {
            Some(_) => self.copies(op.output),
            None => self.touches(op.output, self.queries_and_keys(op.block, op.output), 0.0),
        }
    }

    /// The elements of keys and values in such a value.
    pub(super) fn keys_and_values(self, block: BlockKind, qkv: ValueId) -> usize {
        self.groups(block, qkv) * block.of(&self.program.model).attention.pair_width()
    }

    /// Keys in such a value: groups of queries that share one.
    fn groups(self, block: BlockKind, qkv: ValueId) -> usize {
        let attention = &block.of(&self.program.model).attention;
        let queries = self.program.layout.group_heads(attention) * attention.head_dim;
        self.elements(qkv) / (queries + attention.pair_width())
    }

    /// The part of a value of all microbatches that one of them has.
    pub(super) fn of_microbatch(self, value: ValueId) -> usize {
        self.elements(value) / self.program.layout.microbatches()
    }

    /// An update of what is no padding: the gradient is read; states and weight are read and written.
    pub(super) fn updates(self, op: &AdamW) -> Work {
        let valid = self.program.valid_elements(op.gradient, self.place);
        let whole = 0..self.elements(op.value);
        let updated = op.run.map_or(whole, |run| self.program.run(run).range());
        let elements = valid.min(updated.end).saturating_sub(updated.start);
        let computation = Computation::Sweep { elements, arithmetic: 12.0 };
        let formats = self.program.practice.formats;
        let in_bucket = op.run.is_some_and(|run| self.program.run(run).master_at.is_some());
        let masters = if in_bucket { self.program.bucket_master_bytes() } else { self.program.master_bytes(op.value) };
        let stored = self.program.element_bytes(op.value);
        let moments = formats.moments;
        // Where there is a master copy, the weight is written alone.
        let weight = if masters > 0 { stored } else { 2 * stored };
        let each = self.program.element_bytes(op.gradient) + 2 * (masters + moments) + weight;
        Work { computation, moved: each * updated.len() as u64 }
    }

    /// Biases of what is no padding, from loads.
    pub(super) fn follows(self, op: &FollowLoads) -> Work {
        let elements = self.program.valid_elements(op.loads, self.place);
        let each = self.program.element_bytes(op.loads) + 2 * self.program.element_bytes(op.bias);
        Work { computation: Computation::Sweep { elements, arithmetic: 3.0 }, moved: each * elements as u64 }
    }

    /// Weights of what is no padding, from masters.
    pub(super) fn restores(self, op: &Restore) -> Work {
        let valid = self.program.valid_elements(op.value, self.place);
        let run = self.program.run(op.run).range();
        let elements = valid.min(run.end).saturating_sub(run.start);
        let each = self.program.element_bytes(op.value) + self.program.bucket_master_bytes();
        Work { computation: Computation::Sweep { elements, arithmetic: 0.0 }, moved: each * elements as u64 }
    }
}

impl Operation {
    /// The local shape, if the operation is a product.
    pub fn product(&self, program: &StageProgram) -> Option<Product> {
        match self {
            Self::Gemm(op) => Some(op.product(program)),
            _ => None,
        }
    }

    /// How many products these are, one for each expert, each of its own rows.
    pub fn groups(&self, program: &StageProgram) -> usize {
        match self {
            Self::Gemm(op) => op.groups(program),
            _ => 1,
        }
    }
}

impl Gemm {
    /// The local shape, of several experts with the rows of all.
    pub fn product(&self, program: &StageProgram) -> Product {
        product_of(program, self.storage, self.left, self.output, self.groups(program))
    }

    /// Whether logits, or their gradient, are among its operands.
    pub fn of_logits(&self, program: &StageProgram) -> bool {
        [self.left, self.right, self.output].iter().any(|value| program.format(*value) == Format::Logits)
    }

    /// How many experts' products there are beside each other; 1 of other products.
    pub fn groups(&self, program: &StageProgram) -> usize {
        program.value(self.output).local_blocks
    }
}

impl Router {
    /// The local shape.
    pub fn product(&self, program: &StageProgram) -> Product {
        let storage = match self.pass {
            GemmPass::Forward => GemmStorage::Nn,
            GemmPass::InputGradient => GemmStorage::Nt,
            GemmPass::WeightGradient => GemmStorage::Tn,
        };
        product_of(program, storage, self.left, self.output, 1)
    }
}

fn product_of(program: &StageProgram, storage: GemmStorage, left: ValueId, output: ValueId, groups: usize) -> Product {
    let left = program.value(left);
    let output = program.value(output);
    match storage {
        GemmStorage::Tn => Product { storage, m: output.local_rows / groups, n: output.local_cols, k: left.local_rows },
        _ => Product { storage, m: output.local_rows, n: output.local_cols, k: left.local_cols },
    }
}
