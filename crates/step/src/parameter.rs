//! Logical parameters: shape, sharding, initial values, ownership.

use quadrille_spec::AxisSet;

use crate::{Layer, ValueId};

/// The number of a parameter in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub usize);

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initial {
    /// Every element the same.
    Constant(f64),
    /// Normal numbers with mean 0 and this standard deviation.
    Normal(f64),
}

/// A trained tensor. Each rank holds the part that its sharding says.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The name: `block.0.qkv.weight`.
    pub name: String,
    /// The layer that uses it (a tied table: the embedding).
    pub layer: Layer,
    /// Logical rows without padding; rows beyond are zero and stay zero.
    pub rows: usize,
    /// Logical columns.
    pub cols: usize,
    /// How it starts.
    pub initial: Initial,
    /// Whether weight decay applies: matrices and tables, not biases and norms.
    pub decay: bool,
    /// Its value.
    pub value: ValueId,
    /// Where the gradients of microbatches are summed.
    pub gradient: ValueId,
    /// The complete gradient, after the reductions of the update: what the norm and the optimizer take.
    pub reduced: ValueId,
    /// The part of the value that the optimizer updates, cut like `reduced`.
    pub updated: ValueId,
    /// Whether it is the second copy of a tied table, on the last stage: it does not count in the gradient norm.
    pub copy: bool,
    /// Axes over which the gradient is still a partial sum after the last microbatch; computed from the shardings
    /// of the values it is made from.
    pub unreduced: AxisSet,
}
