//! The parameters of a rank, and what ZeRO leaves of them.

use quadrille_spec::Zero;

use super::Candidate;
use super::operations::Sizes;

/// What a parameter's gradient is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By a product or lookup, cut over z.
    Weight,
    /// Summed over rows of the residual stream.
    Stream,
    /// Summed over rows inside a block.
    Inner,
}

/// A parameter of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameter {
    pub kind: Kind,
    /// Elements that the rank holds before ZeRO cuts them.
    pub elements: u64,
}

impl Sizes {
    /// Shows the parameters of a block.
    pub fn block_parameters(&self, mut see: impl FnMut(Parameter)) {
        for linear in self.linears() {
            see(self.weight(linear.tile()));
        }
        let stream = Parameter { kind: Kind::Stream, elements: self.stream_cols };
        for _ in 0..2 * self.norm.vectors() {
            see(stream);
        }
        if self.biases {
            for outputs in [self.qkv.outputs, self.up.outputs] {
                see(Parameter { kind: Kind::Inner, elements: outputs });
            }
            see(stream);
            see(stream);
        }
    }

    /// Shows the parameters of the embedding.
    pub fn embedding_parameters(&self, mut see: impl FnMut(Parameter)) {
        see(self.weight(self.table));
        if self.learned_positions {
            see(Parameter { kind: Kind::Stream, elements: self.positions });
        }
    }

    /// Shows the parameters of the final norm and the head; `has_table`: not those of a tied embedding on this rank.
    pub fn head_parameters(&self, has_table: bool, mut see: impl FnMut(Parameter)) {
        for _ in 0..self.norm.vectors() {
            see(Parameter { kind: Kind::Stream, elements: self.stream_cols });
        }
        if has_table {
            see(self.weight(self.table));
        }
    }

    fn weight(&self, tile: u64) -> Parameter {
        Parameter { kind: Kind::Weight, elements: tile / self.z }
    }
}

/// How ZeRO cuts parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharding {
    /// Ranks that hold the same parameters.
    pub replicas: u64,
    pub zero: Zero,
}

impl Sharding {
    pub fn of(c: &Candidate) -> Self {
        let replicas = c.size(quadrille_spec::Axis::Context) * c.size(quadrille_spec::Axis::Data);
        Self { replicas: replicas as u64, zero: if replicas == 1 { Zero::Off } else { c.zero } }
    }

    /// Elements that the optimizer of a rank updates: shards are equally long.
    pub fn shard(&self, parameter: Parameter) -> u64 {
        if self.zero == Zero::Off { parameter.elements } else { parameter.elements.div_ceil(self.replicas) }
    }

    /// Elements with the padding of the shards.
    pub fn padded(&self, parameter: Parameter) -> u64 {
        if self.zero == Zero::Off { parameter.elements } else { self.shard(parameter) * self.replicas }
    }

    /// Whether the gradient is a shard already when microbatches are summed.
    pub fn shards_gradient(&self, parameter: Parameter) -> bool {
        self.zero == Zero::Gradients && parameter.kind == Kind::Weight
    }

    /// Elements of the stored gradient.
    pub fn gradient(&self, parameter: Parameter) -> u64 {
        if self.shards_gradient(parameter) { self.shard(parameter) } else { self.padded(parameter) }
    }
}
