//! What does not vary while layouts are compared.

use quadrille_spec::{Axis, Cluster, Device, Model, Recompute, Schedule, SpecError, Tier, Zero};

use super::operations::Sizes;
use super::{Candidate, Framework, Memory, Parts, Price};

/// A model to be trained on a cluster by a framework, with so many sequences of so many tokens a step.
#[derive(Debug, Clone)]
pub struct Problem {
    pub(super) model: Model,
    device: Device,
    tiers: Vec<Tier>,
    pub(super) framework: Framework,
    pub(super) global_batch: usize,
    seq_len: usize,
}

/// What one transformer block, the embedding and the head cost for one microbatch, forward and backward. It depends on
/// a candidate's sizes of x, y, z and context and what of them lies inside, its microbatch, activations, linear
/// algorithm, overlap, chunks of overlap, recomputation and how long weights are kept, and so serves candidates that
/// differ in data, pipe, schedule, chunks and ZeRO.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    seconds: [f64; 3],
    flops: [f64; 2],
    saved_bytes: f64,
    exposed: [f64; 6],
}

impl Problem {
    /// # Errors
    /// A cluster that does not describe its device or its networks, a batch or a sequence of nothing.
    pub fn new(
        model: &Model,
        cluster: &Cluster,
        framework: Framework,
        global_batch: usize,
        seq_len: usize,
    ) -> Result<Self, SpecError> {
        let rule = "the native model needs to know how fast a device computes and its networks are";
        let Some(device) = cluster.device.clone() else {
            let remedy = "give the cluster a device, e.g. device = \"a100-80\", or use the model axonn";
            return Err(SpecError::invalid("device", format!("none in {}", cluster.name), rule, remedy));
        };
        if cluster.tiers.is_empty() {
            let remedy = "give the cluster [[tiers]], innermost first, or use the model axonn";
            return Err(SpecError::invalid("tiers", format!("none in {}", cluster.name), rule, remedy));
        }
        for (field, value) in [("global-batch", global_batch), ("seq-len", seq_len)] {
            if value == 0 {
                return Err(SpecError::invalid(field, 0, "it must be at least 1", "give a positive number"));
            }
        }
        Ok(Self { model: model.clone(), device, tiers: cluster.tiers.clone(), framework, global_batch, seq_len })
    }

    /// What the passes of a candidate depend on.
    pub(super) fn sizes(&self, c: &Candidate) -> Sizes {
        Sizes::of(&self.model, &self.framework, self.seq_len, c)
    }

    /// The price of a block; see [`Block`].
    pub fn block(&self, c: &Candidate) -> Block {
        let [x, y, z, context] = [0, 1, 2, 3].map(|axis| c.sizes[axis] as f64);
        let rows = c.microbatch as f64 * self.seq_len as f64 / z / context;
        let model = &self.model;
        let (h, v) = (model.hidden as f64, model.vocab as f64);
        let weights = h * (model.qkv_width() + model.hidden + model.up_width() + model.ffn) as f64;
        let flops = (2.0 * rows * weights + 4.0 * rows * self.seq_len as f64 * h) / (x * y);
        let head = 2.0 * rows * v * h / (x * y);
        let rate = self.device.peak.half * self.device.products.at([rows, h / x, h]);
        let again = if let Recompute::Full { .. } = c.recompute { 4.0 } else { 3.0 };
        let tier = &self.tiers[if c.inside[0] == c.sizes[0] { 0 } else { self.tiers.len() - 1 }];
        let bytes = 8.0 * rows * h * (x - 1.0) / x * self.framework.activation_bytes as f64;
        let mut exposed = [0.0; 6];
        exposed[0] = bytes / (tier.bandwidth * tier.efficiency);
        let kept = match c.recompute {
            Recompute::Full { every } => 1.0 / every as f64,
            Recompute::Selective => 10.0,
            Recompute::None => 16.0,
        };
        let saved_bytes = kept * rows * h / (x * y) * self.framework.activation_bytes as f64;
        Block {
            seconds: [again * flops / rate, 3.0 * head / rate, 0.0],
            flops: [again * flops, 3.0 * head],
            saved_bytes,
            exposed,
        }
    }

    /// The price of a step, from that of the candidate's [`Block`].
    pub fn price(&self, c: &Candidate, block: &Block) -> Price {
        let pipe = c.size(Axis::Pipe) as f64;
        let m = c.microbatches(self.global_batch) as f64;
        let layers = (self.model.layers as f64 / pipe).ceil();
        let pass = layers * block.seconds[0] + block.seconds[1];
        let mut parts = Parts { compute: m * pass, bubble: (pipe - 1.0) / c.chunks as f64 * pass, ..Parts::default() };
        if c.schedule == Schedule::ZeroBubble {
            parts.bubble /= 3.0;
        }
        parts.communication[0] = m * layers * block.exposed[0];
        let shards = (c.sizes[0] * c.sizes[1] * c.sizes[2]) as f64;
        let parameters = self.model.parameters() as f64 / shards / pipe;
        let replicas = (c.sizes[3] * c.sizes[4]) as f64;
        let states = self.framework.states;
        let sharded = if c.zero == Zero::Off { 1.0 } else { replicas };
        let in_flight = if c.schedule == Schedule::Gpipe { m } else { pipe.min(m) };
        let memory = Memory {
            stage: 0,
            parameters: (parameters * states.weight as f64) as u64,
            gradients: (parameters * states.gradient as f64) as u64,
            optimizer: (parameters * states.optimizer as f64 / sharded) as u64,
            activations: (in_flight * layers * block.saved_bytes) as u64,
            buffers: 0,
            framework: self.framework.reserved_bytes,
        };
        let model_flops = 6.0 * (self.global_batch * self.seq_len) as f64 * self.model.parameters() as f64;
        let executed = (self.model.layers as f64 * block.flops[0] + block.flops[1]) * m * shards * replicas;
        Price { seconds: parts.total(), parts, memory, model_flops, executed_flops: executed }
    }
}
