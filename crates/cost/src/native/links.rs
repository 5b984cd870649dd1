//! The groups over which a step communicates outside of blocks.

use quadrille_spec::{Axis, AxisSet, Zero};

use super::network::{Link, Placement};
use super::step::Step;

/// Their links.
pub(super) struct Links {
    /// The ranks that hold the same parameters.
    pub replicas: Link,
    /// The ranks of `Sizes::row_groups`, with all that ZeRO does not scatter gradients over. Where gradients are reduced in
    /// buckets, theirs are among them.
    pub rows: [Link; 3],
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
        let rows = match step.problem.framework.gradient_bucket {
            Some(_) => [Link::default(); 3],
            None => step.block.sizes.row_groups().map(|group| {
                let replicas = if step.sharding.zero == Zero::Off { Self::REPLICATING } else { AxisSet::EMPTY };
                link(replicas.union(group))
            }),
        };
        Self { replicas: link(Self::REPLICATING), rows, pipe: link(Axis::Pipe.only()), world: link(AxisSet::WORLD) }
    }
}
