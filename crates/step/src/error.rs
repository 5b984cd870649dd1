//! What can be wrong with a program.

use quadrille_spec::SpecError;

use crate::schedule::ScheduleError;

/// A program that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StepError {
    /// The layout does not fit the model.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The schedule cannot be made for this pipeline.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The model, or the sizes of a pass, do not fit generation.
    #[error("cannot generate with {model}: {rule}")]
    Generation {
        /// The model's name.
        model: String,
        /// What stands in the way.
        rule: &'static str,
    },
    /// A reordered operation would read what another has changed.
    #[error("{operation} would read {value} after it was overwritten")]
    Overwritten {
        /// The value.
        value: String,
        /// The operation that reads it.
        operation: &'static str,
    },
    /// A reordered operation would read what is not there yet.
    #[error("{operation} would read {value} before it is written")]
    Unwritten {
        /// The value.
        value: String,
        /// The operation that reads it.
        operation: &'static str,
    },
    /// An axis does not divide a dimension of a value.
    #[error("{value}: {axes}={parts} does not divide its {size} {dim}")]
    Indivisible {
        /// The value.
        value: String,
        /// Which dimension.
        dim: &'static str,
        /// Its size.
        size: usize,
        /// The axes that cut it.
        axes: String,
        /// The product of their sizes.
        parts: usize,
    },
    /// An axis would cut a value twice, or cut it and be summed over.
    #[error("{value}: an axis appears twice in its sharding ({sharding})")]
    AxisUsedTwice {
        /// The value.
        value: String,
        /// Its sharding.
        sharding: String,
    },
    /// More than a 64-bit count holds.
    #[error(
        "a rank would have to {what} {amount:.1e} {unit} in one step, more than can be counted; use more ranks or a smaller model or batch"
    )]
    TooLarge {
        /// What it would have to do.
        what: &'static str,
        /// How much.
        amount: f64,
        /// Of what.
        unit: &'static str,
    },
    /// A mask of a tensor that is not pruned.
    #[error("{tensor} has a mask, and only matrices of blocks, tables and heads of the model are pruned")]
    NotPrunable {
        /// The tensor.
        tensor: String,
    },
    /// A pruned tensor with keys that several ranks would hold.
    #[error(
        "{tensor} is pruned, and the {ranks} ranks along x would hold copies of its {keys} heads of keys; use x={keys} or less"
    )]
    SharedPruned {
        /// The tensor.
        tensor: String,
        /// The size of x.
        ranks: usize,
        /// Heads of keys.
        keys: usize,
    },
    /// A mask that does not fit its tile, or a tile that is too large for an index of 32 bits.
    #[error("{value}: {kept} elements are kept of a tile of {tile}, which may have 2^32 - 1; cut it over x, y or z")]
    Mask {
        /// The value.
        value: String,
        /// How many elements are kept.
        kept: usize,
        /// How many there are.
        tile: usize,
    },
    /// No sequence of collectives leads from one sharding to another.
    #[error("{value}: no transition from ({from}) to ({to}): {reason}")]
    IllegalTransition {
        /// The value.
        value: String,
        /// Its sharding.
        from: String,
        /// The wanted sharding.
        to: String,
        /// What stands in the way.
        reason: &'static str,
    },
}
