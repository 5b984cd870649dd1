//! The parameters of a rank, and what ZeRO leaves of them.

use quadrille_spec::Zero;

use super::Candidate;
use super::operations::Sizes;

/// What a parameter's gradient is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By a product or lookup, cut over z.
    Weight,
    /// By a product on rows of the residual stream, cut over z: at the ends of a model of patches.
    PatchWeight,
    /// Summed over rows of the residual stream.
    Stream,
    /// Summed over rows inside a block.
    Inner,
}

impl Kind {
    /// Which of [`Sizes::row_groups`] its gradient is summed over after the last microbatch, beside the ranks that hold
    /// the same parameters.
    pub fn row_group(self) -> Option<usize> {
        match self {
            Self::Weight => None,
            Self::Stream => Some(0),
            Self::Inner => Some(1),
            Self::PatchWeight => Some(2),
        }
    }
}

/// A parameter of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameter {
    pub kind: Kind,
    /// Elements that the rank holds before ZeRO cuts them.
    pub elements: u64,
}

impl Sizes {
    /// Shows the parameters of a block, and how many there are of each.
    pub fn block_parameters(&self, mut see: impl FnMut(Parameter, u64)) {
        for linear in self.linears() {
            see(self.weight(linear.tile()), 1);
        }
        let biases = if self.biases { 2 } else { 0 };
        see(Parameter { kind: Kind::Stream, elements: self.stream_cols }, 2 * self.norm.vectors() as u64 + biases);
        if self.biases {
            for outputs in [self.qkv.outputs, self.up.outputs] {
                see(Parameter { kind: Kind::Inner, elements: outputs }, 1);
            }
        }
    }

    /// Shows the parameters of the embedding.
    pub fn embedding_parameters(&self, mut see: impl FnMut(Parameter, u64)) {
        see(self.end_weight(), 1);
        if self.patches && self.biases {
            see(Parameter { kind: Kind::Stream, elements: self.stream_cols }, 1);
        }
        if self.learned_positions {
            see(Parameter { kind: Kind::Stream, elements: self.positions }, 1);
        }
    }

    /// Shows the parameters of the final norm and the head; `has_table`: not those of a tied embedding on this rank.
    pub fn head_parameters(&self, has_table: bool, mut see: impl FnMut(Parameter, u64)) {
        see(Parameter { kind: Kind::Stream, elements: self.stream_cols }, self.norm.vectors() as u64);
        if has_table {
            see(self.end_weight(), 1);
        }
        if self.patches && self.biases {
            see(Parameter { kind: Kind::Stream, elements: self.logits }, 1);
        }
    }

    /// The table, or the weight of patches.
    fn end_weight(&self) -> Parameter {
        let kind = if self.patches { Kind::PatchWeight } else { Kind::Weight };
        Parameter { kind, ..self.weight(self.table) }
    }

    /// A weight whose tile is so large.
    pub fn weight(&self, tile: u64) -> Parameter {
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

    /// What a rank holds of a parameter.
    pub fn held(&self, parameter: Parameter) -> Held {
        if self.zero == Zero::Off {
            let elements = parameter.elements;
            return Held { shard: elements, padded: elements, gradient: elements };
        }
        let shard = parameter.elements.div_ceil(self.replicas);
        let padded = shard * self.replicas;
        Held { shard, padded, gradient: if self.shards_gradient(parameter) { shard } else { padded } }
    }

    /// Whether the gradient is a shard already when microbatches are summed.
    pub fn shards_gradient(&self, parameter: Parameter) -> bool {
        self.zero == Zero::Gradients && matches!(parameter.kind, Kind::Weight | Kind::PatchWeight)
    }
}

/// Elements of a parameter on a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// What the optimizer updates: ZeRO's shards are equally long.
    pub shard: u64,
    /// The parameter, with the padding of the shards.
    pub padded: u64,
    /// The stored gradient.
    pub gradient: u64,
}
