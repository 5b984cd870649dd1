//! The question in words: what is trained where, and what TFLOP/s, MFU and HFU are.

use quadrille_plan::native::{Question, Reserve, Setting};
use quadrille_run::units::{bytes, decimal};
use quadrille_spec::{ElementType, FlopsConvention, Imbalance, Sparsity, SpecError};

/// The question of a plan, as far as its text says it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Headline {
    /// Name of the model.
    pub model: String,
    /// Its parameters.
    pub parameters: u64,
    /// Pruned part of its blocks' matrices.
    pub sparsity: Option<Sparsity>,
    /// Number of devices.
    pub devices: usize,
    /// Name of the device, where it is described.
    pub device: Option<String>,
    /// Name of the cluster.
    pub cluster: String,
    /// Used devices of each node, and all of them, where some are not used.
    pub used_of_node: Option<[usize; 2]>,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Framework that trains.
    pub framework: String,
    /// Element type of its values, where the device lacks the usual one.
    pub dtype: Option<ElementType>,
    /// Bytes of a device.
    pub device_memory: Option<u64>,
    /// Bytes of a device that stay free.
    pub reserved: u64,
    /// Part of runs that are to fit, where the reserve follows from it.
    pub fitting_runs: Option<f64>,
    /// Rows of experts of the fullest rank.
    pub imbalance: FullestRank,
    /// Convention of FLOPs.
    pub flops_convention: FlopsConvention,
    /// Peak FLOP/s of a device, and the kind of its products.
    pub peak: Option<(f64, &'static str)>,
}

/// Rows of experts of the rank that is priced.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum FullestRank {
    /// The mean.
    #[default]
    Equal,
    /// A multiple of the mean.
    Times(f64),
    /// As in a run.
    Measured,
}

impl Headline {
    /// Headline of a question.
    ///
    /// # Errors
    /// A reserve of more than a device has.
    pub fn new(question: &Question, setting: &Setting) -> Result<Self, SpecError> {
        let framework = &setting.framework;
        let used_of_node = match (setting.per_node, question.cluster.node_devices()) {
            (Some(used), Some(node)) if question.devices > used => Some([used, node]),
            _ => None,
        };
        let has_usual_type = framework.is_own() || framework.dtype == ElementType::Bf16;
        Ok(Self {
            model: question.model.name.clone(),
            parameters: question.model.parameters(),
            sparsity: framework.sparsity,
            devices: question.devices,
            device: question.cluster.device.as_ref().map(|device| device.name.clone()),
            cluster: question.cluster.name.clone(),
            used_of_node,
            global_batch: question.global_batch,
            seq_len: question.seq_len,
            framework: framework.name.to_owned(),
            dtype: (!has_usual_type).then_some(framework.dtype),
            device_memory: question.cluster.device_memory,
            reserved: question.reserved()?,
            fitting_runs: match question.reserve {
                Reserve::Runs(part) => Some(part),
                _ => None,
            },
            imbalance: match &question.imbalance {
                Imbalance::Times(1.0) => FullestRank::Equal,
                Imbalance::Times(times) => FullestRank::Times(*times),
                Imbalance::Measured(_) => FullestRank::Measured,
            },
            flops_convention: question.flops_convention,
            peak: setting.peak(),
        })
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let device = self.device.as_deref().unwrap_or("devices");
        let used = self.used_of_node.map(|[used, node]| format!(" ({used} of the {node} of each node)"));
        let pruned = |sparsity| format!(", {sparsity} of its blocks' matrices pruned, as if every tile kept as many");
        let fullest = match self.imbalance {
            FullestRank::Equal => String::new(),
            FullestRank::Times(times) => {
                format!(", the rank priced that has {times} times the mean of the rows of experts")
            }
            FullestRank::Measured => ", the rank priced that had most of the rows of experts in a run".to_owned(),
        };
        let trainer = match self.dtype {
            None => self.framework.clone(),
            Some(dtype) => format!("{} in {dtype}, since {device} has no bf16", self.framework),
        };
        format!(
            "{} ({} parameters{}) on {} {device} of {}{}, {} sequences of {} tokens a step, by {trainer}{}{fullest}\n",
            self.model,
            decimal(self.parameters as f64, "").trim_end(),
            self.sparsity.map(pruned).unwrap_or_default(),
            self.devices,
            self.cluster,
            used.unwrap_or_default(),
            self.global_batch,
            self.seq_len,
            self.free_memory(),
        ) + &self.utilization()
    }

    fn free_memory(&self) -> String {
        match (self.device_memory, self.reserved) {
            (None, _) => String::new(),
            (Some(memory), 0) => format!(", with {} of memory each", bytes(memory)),
            (Some(memory), reserved) => {
                let kept = format!(", {} of the {} of each kept free", bytes(reserved), bytes(memory));
                match self.fitting_runs {
                    Some(part) => kept + &format!(" so that {}% of runs fit", (1000.0 * part).round() / 10.0),
                    None => kept,
                }
            }
        }
    }

    /// Meaning of TFLOP/s, MFU and HFU.
    fn utilization(&self) -> String {
        let counted = counted(self.flops_convention);
        match self.peak {
            None => format!("TFLOP/s: {counted}, over step x devices\n"),
            Some((peak, kind)) => format!(
                "TFLOP/s, MFU: {counted}, over step x devices, and over that x {} ({kind} peak); HFU: all that are executed, over \
                 the same\n",
                decimal(peak, "FLOP/s")
            ),
        }
    }
}

/// FLOPs that TFLOP/s and MFU are of.
pub(crate) fn counted(convention: FlopsConvention) -> &'static str {
    match convention {
        FlopsConvention::Native => {
            "FLOPs of products and attention, forward and backward, nothing twice and no causal discount"
        }
        FlopsConvention::Megatron => {
            "FLOPs as Megatron-LM's log counts them (num_floating_point_operations: half of attention, logits of the padded \
             vocabulary, no routers)"
        }
        FlopsConvention::Torchtitan => {
            "FLOPs as torchtitan's log counts them (6 a token and active parameter that is no table, attention without causal \
             discount)"
        }
    }
}
