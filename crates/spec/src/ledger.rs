//! The ledger of a step: bytes per axis, collective and layer; FLOPs per kind; bytes of memory per class.
//!
//! The same types hold what the step program predicts and what a run counts; the two are compared as integers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::AddAssign;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A kind of communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// Every member ends with the reduction of all buffers.
    AllReduce,
    /// Member i ends with chunk i of the reduction.
    ReduceScatter,
    /// Every member ends with all chunks in order.
    AllGather,
    /// Every member ends with the root's buffer.
    Broadcast,
    /// The root ends with the reduction of all buffers.
    Reduce,
    /// Member i ends with chunk i of every member.
    AllToAll,
    /// A message to one member.
    Send,
    /// A message from one member.
    Receive,
    /// A rendezvous without data.
    Barrier,
    /// States of the optimizer, from the host's memory to the device.
    Fetch,
    /// The same, back.
    Store,
}

/// The key of what moves between a device and the host's memory, beside those of axes.
pub const HOST: &str = "host";

impl CollectiveKind {
    /// The name in ledgers, messages and programs: `all-reduce`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "all-to-all",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Barrier => "barrier",
            Self::Fetch => "fetch",
            Self::Store => "store",
        }
    }
}

/// Communication of one kind, summed over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// Number of calls.
    pub calls: u64,
    /// Bytes of the full logical buffer on this rank: the output of an all-gather, the input of a
    /// reduce-scatter, the buffer of an all-reduce.
    pub payload_bytes: u64,
    /// Bytes that this rank puts on the wire.
    pub wire_bytes: u64,
}

impl AddAssign for Transfer {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.payload_bytes += other.payload_bytes;
        self.wire_bytes += other.wire_bytes;
    }
}

/// Transfers by the key of the axes that they span (`x`, `y+z+data`, `world`) and by kind. Axes of size 1 appear,
/// empty. What moves between a device and its host ([`HOST`]) is a payload, and on no wire.
pub type AxesLedger = BTreeMap<String, BTreeMap<CollectiveKind, Transfer>>;

/// The transfers of one layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayerLedger {
    /// `embedding`, `block 0`, ..., `head`, `step`.
    pub layer: String,
    /// Its transfers.
    pub axes: AxesLedger,
}

/// FLOPs by kind of operation, from executed shapes; a product counts 2mkn, attention the keys of its window, or all, without causal
/// discount. Element-wise work is listed apart: [`RankLedger::elements`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlopsLedger {
    /// Products of forward linear layers and the head.
    pub gemm_forward: u64,
    /// Products that give gradients of inputs.
    pub gemm_input_gradient: u64,
    /// Products that give gradients of weights.
    pub gemm_weight_gradient: u64,
    /// Scores and weighted values.
    pub attention_forward: u64,
    /// Twice the forward count.
    pub attention_backward: u64,
}

impl FlopsLedger {
    /// All FLOPs of products and attention.
    pub fn total(&self) -> u64 {
        self.gemm_forward
            + self.gemm_input_gradient
            + self.gemm_weight_gradient
            + self.attention_forward
            + self.attention_backward
    }
}

/// What a piece of memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryClass {
    /// The rank's shards of the parameters.
    Parameters,
    /// The gradients of these shards.
    Gradients,
    /// The optimizer's states.
    Optimizer,
    /// Results of operations in the forward pass and their gradients.
    Activations,
    /// Weights gathered over z for use.
    GatheredWeights,
    /// Operands and results of collectives that are neither of the above: packed blocks, unreduced weight
    /// gradients, statistics.
    Buffers,
    /// The optimizer's states in the host's memory: beside the device's, and in no sum of it. Ledgers have it where there are
    /// some.
    Host,
}

impl MemoryClass {
    /// Every class of the device's memory.
    pub const ALL: [Self; 6] =
        [Self::Parameters, Self::Gradients, Self::Optimizer, Self::Activations, Self::GatheredWeights, Self::Buffers];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::Optimizer => "optimizer",
            Self::Activations => "activations",
            Self::GatheredWeights => "gathered weights",
            Self::Buffers => "buffers of collectives",
            Self::Host => "the host's memory",
        }
    }
}

/// Requested bytes of live values and states; kernels' scratch and thread stacks are outside. For people's formats, such
/// as JSON, the fields of `peak_of` stand beside the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryLedger {
    /// The most bytes of each class at any time of the step.
    pub peak_of: BTreeMap<MemoryClass, u64>,
    /// The most bytes of all classes of the device together at any time of the step.
    pub peak: u64,
    /// Bytes of all buffers that hold these values and states. At least the peak: a value may lie in a buffer that
    /// another one needed larger.
    pub allocated: u64,
    /// Bytes of each class after the step.
    pub now: BTreeMap<MemoryClass, u64>,
}

/// A memory ledger as people's formats show it.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Flat {
    #[serde(flatten)]
    peak_of: BTreeMap<MemoryClass, u64>,
    peak: u64,
    allocated: u64,
    now: BTreeMap<MemoryClass, u64>,
}

impl JsonSchema for MemoryLedger {
    fn schema_name() -> Cow<'static, str> {
        "MemoryLedger".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Flat::json_schema(generator)
    }
}

/// As formats that do not describe themselves carry it: they cannot flatten.
type Plain = (BTreeMap<MemoryClass, u64>, u64, u64, BTreeMap<MemoryClass, u64>);

impl Serialize for MemoryLedger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { peak_of, peak, allocated, now } = self.clone();
        if serializer.is_human_readable() {
            return Flat { peak_of, peak, allocated, now }.serialize(serializer);
        }
        let plain: Plain = (peak_of, peak, allocated, now);
        plain.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MemoryLedger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let Flat { peak_of, peak, allocated, now } = Flat::deserialize(deserializer)?;
            return Ok(Self { peak_of, peak, allocated, now });
        }
        let (peak_of, peak, allocated, now) = Plain::deserialize(deserializer)?;
        Ok(Self { peak_of, peak, allocated, now })
    }
}

impl MemoryLedger {
    /// Nothing held.
    pub fn new() -> Self {
        let zeros: BTreeMap<_, _> = MemoryClass::ALL.into_iter().map(|class| (class, 0)).collect();
        Self { peak_of: zeros.clone(), peak: 0, allocated: 0, now: zeros }
    }

    /// Notes that `bytes` of `class` are taken.
    pub fn take(&mut self, class: MemoryClass, bytes: u64) {
        let now = self.now.entry(class).or_default();
        *now += bytes;
        let peak = self.peak_of.entry(class).or_default();
        *peak = (*peak).max(*now);
        let of_device = self.now.iter().filter(|(class, _)| **class != MemoryClass::Host).map(|(_, bytes)| bytes);
        self.peak = self.peak.max(of_device.sum());
    }

    /// Notes that `bytes` of `class` are given back.
    pub fn give_back(&mut self, class: MemoryClass, bytes: u64) {
        *self.now.entry(class).or_default() -= bytes;
    }
}

/// What one rank sends, computes and holds in a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankLedger {
    /// The rank's number.
    pub rank: usize,
    /// Transfers of the whole step.
    pub axes: AxesLedger,
    /// The same by layer, in the order of the model.
    pub layers: Vec<LayerLedger>,
    /// Work.
    pub flops: FlopsLedger,
    /// Elements that element-wise operations sweep over, by the operation's name.
    pub elements: BTreeMap<Cow<'static, str>, u64>,
    /// Memory.
    pub memory: MemoryLedger,
}

/// The ledgers of all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// In order of rank.
    pub ranks: Vec<RankLedger>,
}
