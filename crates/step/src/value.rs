//! Values and the storages behind them.

use quadrille_spec::{Axis, AxisSet, Grid, Layout, MemoryClass};
use serde::{Deserialize, Serialize};

use crate::{Extent, Kept, Practice, Sharding, queues};

/// The number of a value in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub usize);

/// The number of a storage in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageId(pub usize);

/// A logical matrix of which every rank holds a part. Operations that work in place give a new value in the same
/// storage.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// For people: `qkv`, `d up weight`.
    pub name: String,
    /// What its rows and columns are, whatever the layout.
    pub extents: [Extent; 2],
    /// Logical rows, padding of the vocabulary included.
    pub rows: usize,
    /// Logical columns.
    pub cols: usize,
    /// Blocks of rows, one for each expert; 1: the rows are all there is.
    pub blocks: usize,
    /// Who holds what.
    pub sharding: Sharding,
    /// Blocks of which the local tile has rows.
    pub local_blocks: usize,
    /// Rows of the local tile, of all its blocks.
    pub local_rows: usize,
    /// Columns of the local tile.
    pub local_cols: usize,
    /// Elements that a rank stores: the tile, or its flat share of it.
    pub local_elements: usize,
    /// How much of the tile is kept of a pruned weight, and held in its order; `None`: all of it.
    pub pruned: Option<Kept>,
    /// Where the elements lie.
    pub storage: StorageId,
    /// Of rows that are queues of experts: the value that has the counts of them. Sizes are those of equal loads,
    /// unless the practice says otherwise.
    pub counts: Option<ValueId>,
    /// The part of the microbatch's token rows that it belongs to; `None` for weights and their gradients.
    pub chunk: Option<usize>,
    /// Axes whose shards lie side by side in the storage, each rank's at its own place; none: the value begins where
    /// its storage does.
    pub inside: AxisSet,
}

impl Value {
    /// The name without the number of a block, which those that do the same differ in: `d qkv.weight`.
    pub fn short_name(&self) -> String {
        match self.name.split_once("block.").and_then(|(before, rest)| Some((before, rest.split_once('.')?))) {
            Some((before, (number, name))) if number.bytes().all(|digit| digit.is_ascii_digit()) => {
                format!("{before}{name}")
            }
            _ => self.name.clone(),
        }
    }

    /// Counts the elements that a rank stores, from the tile.
    pub(crate) fn hold(&mut self, grid: &Grid) {
        self.local_elements = self.sharding.flat_share(self.local_rows * self.local_cols, self.pruned, grid);
    }

    /// Elements that the layout has room for: those that it has, or where they are rows of queues, more.
    pub(crate) fn room(&self, layout: &Layout) -> usize {
        if self.counts.is_none() {
            return self.local_elements;
        }
        times(self.equal_rows(&layout.grid), queues::room(self, layout)) * self.local_cols
    }

    /// Elements of the memory that a practice allocates for it: of rows of queues those that there is room for, or that it has.
    pub(crate) fn allocated(&self, layout: &Layout, practice: &Practice) -> usize {
        if practice.reserves_expert_rows { self.room(layout) } else { self.local_elements }
    }

    /// Gives a value whose rows are queues as many as the fullest rank has.
    pub(crate) fn crowd(&mut self, layout: &Layout, imbalance: f64) {
        if self.counts.is_some() && imbalance > 1.0 {
            self.local_rows = times(self.equal_rows(&layout.grid), queues::crowd(self, layout, imbalance));
            self.local_elements = self.local_rows * self.local_cols;
        }
    }

    /// Rows of the local tile; of queues those that equal loads bring.
    pub(crate) fn equal_rows(&self, grid: &Grid) -> usize {
        let parts = |axes: &[Axis]| axes.iter().map(|axis| grid.size(*axis)).product::<usize>();
        self.rows / (parts(&self.sharding.blocks) * parts(&self.sharding.rows))
    }
}

/// So many times as many rows; what is whole but for rounding is whole.
fn times(rows: usize, times: f64) -> usize {
    (rows as f64 * times * (1.0 - 1e-12)).ceil() as usize
}

/// What numbers are for, which decides how they are stored: see [`Formats`](crate::Formats).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Activations, their gradients, and what is packed of them.
    Values,
    /// Activations of a block that were scattered over axes that cut weights, gathered for a product.
    Operands,
    /// The same of their gradients.
    OperandGradients,
    /// Matrices and tables as they are stored.
    Weights,
    /// Parameters of norms and biases as they are stored.
    Vectors,
    /// What is gathered of parameters.
    Gathered,
    /// Gradients of matrices and tables.
    Gradients,
    /// Gradients of vectors.
    VectorGradients,
    /// Gradients of matrices and tables on their way: before they are reduced.
    Sent,
    /// Gradients of vectors on their way.
    SentVectors,
    /// Sums over rows: statistics of norms and of the softmax, maxima; what a router computes.
    Sums,
    /// Logits, and their gradients in their place.
    Logits,
    /// What dropout has zeroed.
    Masks,
    /// Scores of attention that are kept.
    Scores,
    /// Scores of attention while its backward pass runs.
    ScoresMeanwhile,
    /// What a norm keeps beside its operands.
    Norms,
    /// What a gated activation function keeps beside its operands.
    Gates,
    /// Copies of products' inputs that are kept for weight gradients.
    KeptOperands,
}

/// What a storage is counted as, and what its numbers are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    pub class: MemoryClass,
    pub format: Format,
}

impl Home {
    pub const ACTIVATIONS: Self = Self { class: MemoryClass::Activations, format: Format::Values };
    /// Statistics that are kept for the backward pass, and what a router computes.
    pub const STATISTICS: Self = Self { class: MemoryClass::Activations, format: Format::Sums };
    pub const WEIGHTS: Self = Self { class: MemoryClass::Parameters, format: Format::Weights };
    pub const VECTORS: Self = Self { class: MemoryClass::Parameters, format: Format::Vectors };
    pub const GATHERED_WEIGHTS: Self = Self { class: MemoryClass::GatheredWeights, format: Format::Gathered };
    pub const LOGITS: Self = Self { class: MemoryClass::Activations, format: Format::Logits };
    pub const GRADIENTS: Self = Self { class: MemoryClass::Gradients, format: Format::Gradients };
    pub const VECTOR_GRADIENTS: Self = Self { class: MemoryClass::Gradients, format: Format::VectorGradients };

    /// A buffer for numbers of this format.
    pub fn buffer(format: Format) -> Self {
        Self { class: MemoryClass::Buffers, format }
    }
}

/// What a storage is as large as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sized {
    /// A value.
    By(ValueId),
    /// All of the equally long shards that data, expert and context cut, of which this value is one.
    ByShards(ValueId),
}

/// A piece of a rank's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageInfo {
    /// Elements of each copy.
    pub elements: usize,
    /// What they are counted by.
    pub sized: Sized,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// What they are for.
    pub format: Format,
    /// What it is counted as.
    pub class: MemoryClass,
    /// Whether it outlives the step: parameters, gradients, weights gathered once per step.
    pub persistent: bool,
    /// Copies, for microbatches in flight at the same time: microbatch `m` uses copy `m % instances`.
    pub instances: usize,
    /// Whether it lives from one pass over a microbatch into another.
    pub kept: bool,
}

impl StorageInfo {
    /// Bytes of each copy.
    pub fn bytes(&self) -> u64 {
        self.elements as u64 * self.element_bytes
    }
}
