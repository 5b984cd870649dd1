//! Values and the storages behind them.

use quadrille_spec::{AxisSet, MemoryClass};

use crate::Sharding;

/// The number of a value in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// Logical rows, padding of the vocabulary included.
    pub rows: usize,
    /// Logical columns.
    pub cols: usize,
    /// Who holds what.
    pub sharding: Sharding,
    /// Rows of the local tile.
    pub local_rows: usize,
    /// Columns of the local tile.
    pub local_cols: usize,
    /// Elements that a rank stores: the tile, or its flat share of it.
    pub local_elements: usize,
    /// Where the elements lie.
    pub storage: StorageId,
    /// The part of the microbatch's token rows that it belongs to; `None` for weights and their gradients.
    pub chunk: Option<usize>,
    /// Axes whose shards lie side by side in the storage, each rank's at its own place; none: the value begins where
    /// its storage does.
    pub inside: AxisSet,
}

/// A piece of a rank's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageInfo {
    /// Elements of the model's type, of each copy.
    pub elements: usize,
    /// What it is counted as.
    pub class: MemoryClass,
    /// Whether it outlives the step: parameters, gradients, weights gathered once per step.
    pub persistent: bool,
    /// Copies, for microbatches in flight at the same time: microbatch `m` uses copy `m % instances`.
    pub instances: usize,
    /// Whether it lives from one pass over a microbatch into another.
    pub kept: bool,
}
