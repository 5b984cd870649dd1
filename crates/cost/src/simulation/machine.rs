//! What machines charge for.

use quadrille_spec::{AxisSet, CollectiveKind};
use quadrille_step::schedule::Action;
use quadrille_step::{At, BlockKind, Computation, Format, Op, StageProgram};

use super::RingNetwork;

/// A collective as a machine prices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Communication {
    /// Which one.
    pub kind: CollectiveKind,
    /// The axes that it spans.
    pub axes: AxisSet,
    /// Ranks that take part, at least 2.
    pub members: usize,
    /// Bytes of the whole buffer: the output of an all-gather, the input of a reduce-scatter.
    pub payload_bytes: u64,
    /// Bytes that a member sends in a ring or pipelined chain.
    pub wire_bytes: u64,
    /// What its numbers are for.
    pub format: Format,
    /// The kind of the block that it belongs to; `None`: to no block.
    pub block: Option<BlockKind>,
}

/// Says how long things take. Times are in seconds, finite and not negative.
pub trait Machine {
    /// An operation on the compute stream of a rank of `stage`. Not asked about collectives.
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64;

    /// A collective, from when all its members have begun it.
    fn collective_seconds(&self, collective: &Communication) -> f64;

    /// A message of `bytes` bytes to another stage.
    fn message_seconds(&self, bytes: u64) -> f64;

    /// A copy of so many bytes between the device and the memory of its host; such copies follow each other. For ever where
    /// a machine does not say how fast they are, so that a program that has some is not simulated.
    fn host_copy_seconds(&self, bytes: u64) -> f64 {
        let _ = bytes;
        f64::INFINITY
    }

    /// The seconds of an operation, and in how many kernels it is done: the host begins one after the other.
    fn operation(&self, stage: &StageProgram, op: &Op) -> (f64, f64) {
        (self.operation_seconds(stage, op), 1.0)
    }

    /// Seconds for which the host is busy with a kernel or collective of a pass. Within a layer it runs ahead of the device,
    /// which waits where its operations are shorter; collectives begin as if the host were there.
    fn host_seconds(&self) -> f64 {
        0.0
    }

    /// Whether collectives of different groups run beside each other, each group's in the order of their issue; else all of a
    /// rank's follow each other.
    fn streams_by_group(&self) -> bool {
        false
    }

    /// The part of a device's rate that operations keep while a collective of their rank is under way: its kernels take
    /// multiprocessors and the memory's bandwidth. In (0, 1]; collectives over several stages, which meet at the end of a
    /// step, take nothing.
    fn share_beside_collectives(&self) -> f64 {
        1.0
    }

    /// The factor by which the operations of a pass take longer than usual on this stage, for studies of irregular
    /// machines; `None` is the update.
    fn slowdown(&self, stage: usize, action: Option<Action>) -> f64 {
        let _ = (stage, action);
        1.0
    }
}

/// How fast one device computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceRates {
    /// FLOP per second that products reach.
    pub gemm_flop_per_s: f64,
    /// FLOP per second that attention reaches.
    pub attention_flop_per_s: f64,
    /// Bytes per second to and from the device's memory.
    pub memory_bytes_per_s: f64,
    /// Seconds before an operation begins.
    pub operation_latency_s: f64,
}

/// Equal devices of constant rates, joined by rings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UniformMachine {
    /// Of every device.
    pub rates: DeviceRates,
    /// Between devices.
    pub network: RingNetwork,
}

impl Machine for UniformMachine {
    /// A roofline: `latency + max(FLOPs / rate, bytes / memory bandwidth)`.
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        let work = op.operation.work(At::first(stage));
        let is_product = matches!(work.computation, Computation::Product { .. });
        let rate = if is_product { self.rates.gemm_flop_per_s } else { self.rates.attention_flop_per_s };
        self.rates.operation_latency_s
            + (work.flops() as f64 / rate).max(work.moved as f64 / self.rates.memory_bytes_per_s)
    }

    fn collective_seconds(&self, collective: &Communication) -> f64 {
        self.network.collective_seconds(collective)
    }

    fn message_seconds(&self, bytes: u64) -> f64 {
        self.network.message_seconds(bytes)
    }

    /// Where both memories are one: every byte is read from it and written to it.
    fn host_copy_seconds(&self, bytes: u64) -> f64 {
        2.0 * bytes as f64 / self.rates.memory_bytes_per_s
    }
}
