//! What does not vary while layouts are compared.

use quadrille_spec::{
    Axis, Block, Cluster, Experts, Imbalance, Layout, Model, Normalization, Rotary, RotaryScaling, SpecError,
};

use super::candidate::Domains;
use super::network::{Network, Placement};
use super::rates::Rates;
use super::{AttentionKernel, Candidate, Framework};

/// Most bytes that any value of a step may have, on a single device: keeps all counts far from overflow.
const MOST_BYTES: f64 = 1e18;

/// A model to be trained on a cluster by a framework, with so many sequences of so many tokens a step.
#[derive(Debug, Clone)]
pub struct Problem {
    pub(super) model: Model,
    /// The model whose blocks differ only where their work does, for bounds.
    pub(super) by_work: Model,
    /// The cluster's name.
    cluster: String,
    pub(super) rates: Rates,
    pub(super) network: Network,
    pub(super) domains: Domains,
    /// The device's name, its bandwidth to the memory of its host, and its share of it.
    device: String,
    pub(super) host_bandwidth: Option<f64>,
    /// Bytes of the device, where they are known.
    pub(super) device_memory: Option<u64>,
    host_memory: Option<u64>,
    pub(super) framework: Framework,
    pub(super) imbalance: Imbalance,
    pub(super) global_batch: usize,
    pub(super) seq_len: usize,
    pub(super) model_flops: f64,
}

impl Problem {
    /// # Errors
    /// A cluster that does not describe its device or its networks, or whose devices do not multiply what the framework stores; a batch
    /// or a sequence of nothing.
    pub fn new(
        model: &Model,
        cluster: &Cluster,
        framework: Framework,
        global_batch: usize,
        seq_len: usize,
    ) -> Result<Self, SpecError> {
        let rule = "the native model needs to know how fast a device computes and its networks are";
        let Some(device) = &cluster.device else {
            let remedy = "give the cluster a device, e.g. device = \"a100-80\", or name one that has, e.g. selene";
            return Err(SpecError::invalid("device", format!("none in {}", cluster.name), rule, remedy));
        };
        if cluster.tiers.is_empty() {
            let remedy = "give the cluster [[tiers]], innermost first, or name one that has, e.g. selene";
            return Err(SpecError::invalid("tiers", format!("none in {}", cluster.name), rule, remedy));
        }
        for (field, value) in [("global-batch", global_batch), ("seq-len", seq_len)] {
            if value == 0 {
                return Err(SpecError::invalid(field, 0, "it must be at least 1", "give a positive number"));
            }
        }
        let framework = framework.on(cluster);
        framework.check_on(device)?;
        framework.numbers.products.map_or(Ok(()), |narrow| narrow.check_on(device))?;
        check_counts(model, &framework, global_batch, seq_len)?;
        Ok(Self {
            model: model.clone(),
            by_work: Model { blocks: model.blocks.each(|block| keep_work(block, seq_len)), ..model.clone() },
            cluster: cluster.name.clone(),
            rates: Rates::new(device, &framework),
            network: Network::new(&cluster.tiers)?,
            domains: Domains::of(cluster),
            device: device.name.clone(),
            host_bandwidth: device.host_bandwidth,
            device_memory: cluster.device_memory,
            host_memory: device.host_memory,
            framework,
            imbalance: Imbalance::EQUAL,
            global_batch,
            seq_len,
            model_flops: Self::model_flops(model, global_batch, seq_len),
        })
    }

    /// The same where ranks get rows of experts unequally: what is priced is the rank that has most.
    ///
    /// # Errors
    /// What says nothing about the model.
    pub fn with_imbalance(self, imbalance: &Imbalance) -> Result<Self, SpecError> {
        imbalance.check(&self.model)?;
        Ok(Self { imbalance: imbalance.clone(), ..self })
    }

    /// Makes sure that the cluster's networks join so many devices.
    ///
    /// # Errors
    /// More devices than the outermost tier joins.
    pub fn check_devices(&self, devices: usize) -> Result<(), SpecError> {
        let joined = self.network.devices();
        if devices <= joined {
            return Ok(());
        }
        let rule = format!("the networks of {} join {joined} devices", self.cluster);
        let remedy = format!("use at most {joined}, or add a tier to the cluster");
        Err(SpecError::invalid("devices", devices, rule, remedy))
    }

    /// Whether the device's share of its host's memory has so many bytes, where it is known.
    pub(super) fn host_holds(&self, bytes: u64) -> bool {
        self.host_memory.is_none_or(|memory| bytes <= memory)
    }

    /// Makes sure that a device can hold so many bytes in the memory of its host, and that the way there is described.
    ///
    /// # Errors
    /// A device without `host_bandwidth`; more bytes than its share.
    pub(super) fn check_host(&self, bytes: u64) -> Result<(), SpecError> {
        if self.host_bandwidth.is_none() {
            let rule = "states in the host's memory have no price where the way there is not described";
            let remedy =
                "give the device host_bandwidth, in bytes per second, or leave the states on it (offload = none)";
            return Err(SpecError::invalid("host_bandwidth", format!("none in {}", self.device), rule, remedy));
        }
        match self.host_memory {
            Some(memory) if memory < bytes => {
                let rule = format!("a rank's states in the host's memory take {bytes} bytes");
                Err(SpecError::invalid("host_memory", memory, rule, "use more ranks, or sharded states (zero = 1)"))
            }
            _ => Ok(()),
        }
    }

    /// What a layout is for this model of its price.
    pub fn candidate(&self, layout: &Layout) -> Candidate {
        Candidate::on_domains(layout, self.domains.used(layout))
    }

    /// How many ranks of a layout share a domain of each tier, innermost first, and with it the domain's links: of the sizes
    /// of its axes and what of them lies inside the innermost domains.
    pub fn ranks_by_tier(&self, sizes: [usize; Axis::COUNT], inside: [usize; Axis::COUNT]) -> Vec<usize> {
        Placement::over(&self.network, sizes, inside).ranks_by_tier().to_vec()
    }

    /// FLOPs that a model needs for a step, as prices count them: products forward and, with gradients of inputs and weights, twice that
    /// backward (none for the inputs of patches), and attention without causal discount, of the keys of its window.
    pub fn model_flops(model: &Model, global_batch: usize, seq_len: usize) -> f64 {
        let [h, s] = [model.hidden, seq_len].map(|size| size as f64);
        let of_block = |it: &Block| {
            let attention = it.attention.keys(seq_len) as f64 * it.attention.flops_of_pair() as f64;
            6.0 * it.product_weights(model.hidden, seq_len) + 3.0 * attention
        };
        let blocks: f64 = model.blocks.counts().map(|(count, block)| count as f64 * of_block(block)).sum();
        let ends = match model.patch_values {
            None => 6.0 * model.vocab as f64 * h,
            Some(values) => (4.0 + 6.0) * values as f64 * h,
        };
        global_batch as f64 * s * (blocks + ends)
    }
}

/// Makes sure that the largest value of a step can be counted in 64 bits: of activations, logits or stored scores.
fn check_counts(model: &Model, framework: &Framework, global_batch: usize, seq_len: usize) -> Result<(), SpecError> {
    let of_block = |Block { attention, feed_forward, .. }: &Block| {
        let layers = attention.input_layers(model.hidden).map(|layer| layer.outputs);
        let attended = layers.fold(attention.qkv_width(), usize::max);
        // Places for a token, whoever has them.
        let places = |experts: &Experts| {
            let placed = experts.capacity.map_or(0, |capacity| {
                let group = capacity.group(seq_len);
                (experts.count * capacity.slots(experts, group)).div_ceil(group)
            });
            placed.max(experts.per_token)
        };
        let chosen = feed_forward.experts().map_or(1, places);
        let widest = feed_forward.perceptrons().map(|perceptron| chosen * perceptron.up_width()).max().unwrap_or(0);
        let scores = if framework.attention == AttentionKernel::Stored { attention.heads * seq_len } else { 0 };
        [widest, attended, scores]
    };
    let widest = model.blocks.kinds().iter().flat_map(of_block).fold(model.vocab.max(model.hidden), usize::max);
    let bytes = 8.0 * global_batch as f64 * seq_len as f64 * widest as f64;
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let rule = format!("a value of {seq_len} tokens a sequence and {widest} columns has at most {MOST_BYTES:e} bytes");
    Err(SpecError::invalid("global-batch", global_batch, rule, "use a smaller global-batch or seq-len"))
}

/// Leaves of a block what its operations on sequences of `seq_len` tokens and their sizes depend on: blocks that are equal then take
/// the same, whatever their scores are multiplied with and how far heads turn.
fn keep_work(block: &mut Block, seq_len: usize) {
    let Block { attention, norm, .. } = block;
    attention.window = attention.window.filter(|window| *window < seq_len);
    (attention.score_scale, attention.cap) = (1.0, None);
    if let Some(rotary) = &mut attention.rotary {
        *rotary = Rotary { base: 1.0, scaling: RotaryScaling::None, ..*rotary };
    }
    for norm in attention.qk_norm.iter_mut().map(|norm| &mut norm.rule).chain([norm]) {
        *norm = Normalization { kind: norm.kind, epsilon: 1.0, offset: false };
    }
}
