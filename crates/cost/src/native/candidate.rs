//! A layout as a search handles it: small, copied freely, ordered.

use quadrille_spec::{Activations, Axis, KeepWeights, Linear, Recompute, Schedule, Zero};

/// Every choice of a layout that changes its price. Pieces of layers are as equal as possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Sizes of the axes, in the order of [`Axis::ALL`].
    pub sizes: [usize; 6],
    /// For each axis, how many neighbours along it share a domain of the innermost tier; divides its size.
    pub inside: [usize; 6],
    /// Sequences of one data rank in one pass, split over z.
    pub microbatch: usize,
    /// How activations lie.
    pub activations: Activations,
    /// How linear layers are multiplied.
    pub linear: Linear,
    /// Panels of a SUMMA product.
    pub summa_panels: usize,
    /// Overlap passes: the input gradient's reduction, the weight gradients' reductions, the weights' gathers.
    pub overlap: quadrille_spec::Overlap,
    /// Parts of a microbatch whose computation and communication interleave.
    pub overlap_chunks: usize,
    /// The order of passes over microbatches.
    pub schedule: Schedule,
    /// Pieces of layers that each stage owns.
    pub chunks: usize,
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// Whether recomputation keeps the outputs of collectives.
    pub keep_communicated: bool,
    /// What is sharded over data and context.
    pub zero: Zero,
    /// How long weights gathered over z are kept.
    pub keep_weights: KeepWeights,
}

impl Candidate {
    /// The size of one axis.
    pub fn size(&self, axis: Axis) -> usize {
        self.sizes[axis as usize]
    }

    /// Devices of the layout.
    pub fn devices(&self) -> usize {
        self.sizes.iter().product()
    }
}
