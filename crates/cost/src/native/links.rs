//! The groups over which a step communicates outside of blocks.

use quadrille_spec::{Axis, AxisSet, Zero};

use super::network::{Link, Placement};
use super::step::Step;

/// Their links.
pub(super) struct Links {
    /// The ranks that hold the same parameters.
    pub replicas: Link,
    /// The ranks over which the gradients of vectors are summed beside weights' over all that ZeRO does not scatter: on the
    /// residual stream, and inside blocks. Where gradients are reduced in buckets, vectors are among them.
    pub vectors: [Link; 2],
    pub pipe: Link,
    pub world: Link,
}

impl Links {
    /// The axes along which ranks hold the same parameters.
    pub const REPLICATING: AxisSet = Axis::Context.only().union(Axis::Data.only());

    pub fn new(step: &Step) -> Self {
        let network = &step.problem.network;
        let placement = Placement::of(network, step.c);
        let link = |axes| Link::new(network, &placement, step.c, axes);
        let vectors = match step.problem.framework.gradient_bucket {
            Some(_) => [Link::default(); 2],
            None => step.block.sizes.vector_groups().map(|group| {
                let replicas = if step.sharding.zero == Zero::Off { Self::REPLICATING } else { AxisSet::EMPTY };
                link(replicas.union(group))
            }),
        };
        Self { replicas: link(Self::REPLICATING), vectors, pipe: link(Axis::Pipe.only()), world: link(AxisSet::WORLD) }
    }
}
