//! Ring collectives on the links that their groups share.

use quadrille_spec::{Axis, AxisSet, Cluster, CollectiveKind, Layout, SpecError};

use super::Communication;

/// Start-up time and bandwidth of rings and messages (the alpha-beta model).
///
/// A collective takes `steps * latency + bytes / bandwidth`: `steps` is the number of messages that follow each other
/// in a ring of `G` members, `G - 1`, for an all-reduce `2 (G - 1)`; `bytes` is what a member sends. Reductions
/// themselves take no time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RingNetwork {
    /// Seconds before the first byte of a message arrives.
    pub latency_s: f64,
    /// Bytes per second of a ring along each axis, indexed by `Axis as usize`.
    pub bandwidths: [f64; Axis::COUNT],
}

impl RingNetwork {
    /// Links on which nothing takes time.
    pub const FREE: Self = Self { latency_s: 0.0, bandwidths: [f64::INFINITY; Axis::COUNT] };

    /// The links of a cluster as the ranks of a layout get them while all groups of an axis run at once: the table of
    /// the cluster inside a node, AxoNN's equation 7 between nodes; see [`Cluster::ring_bandwidths`].
    ///
    /// # Errors
    /// More ranks in a node than the cluster's nodes have devices, or several nodes without a network.
    pub fn new(cluster: &Cluster, layout: &Layout, latency_s: f64) -> Result<Self, SpecError> {
        Ok(Self { latency_s, bandwidths: cluster.ring_bandwidths(&layout.grid, layout.per_node)? })
    }

    /// Bytes per second of a ring over several axes: that of the slowest axis. This is a lower bound: one ring over an
    /// outer and an inner axis leaves a node less often than the rings along the outer axis alone, which run at once.
    pub fn bandwidth(&self, axes: AxisSet) -> f64 {
        axes.iter().map(|axis| self.bandwidths[axis as usize]).fold(f64::INFINITY, f64::min)
    }

    /// Seconds of a collective once all its members have begun it.
    pub fn collective_seconds(&self, collective: &Communication) -> f64 {
        let steps = match collective.kind {
            CollectiveKind::AllReduce => 2 * (collective.members - 1),
            _ => collective.members - 1,
        };
        steps as f64 * self.latency_s + collective.wire_bytes as f64 / self.bandwidth(collective.axes)
    }

    /// Seconds of a message of `bytes` between neighbouring stages, while all ranks of a stage send theirs.
    pub fn message_seconds(&self, bytes: u64) -> f64 {
        self.latency_s + bytes as f64 / self.bandwidths[Axis::Pipe as usize]
    }
}
