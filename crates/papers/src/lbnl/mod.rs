//! The performance model of Subramanian et al., "Comprehensive Performance Modeling and System Design Insights for
//! Foundation Models" (arXiv 2410.00273): a training step as their public code prices it (revision `54278b0`), digit
//! for digit.
//!
//! A roofline for every layer of a block, ring collectives over a fast and a slow network, 1F1B pipelines, data
//! parallelism with sharded optimizer states. No embedding, head or loss. What is odd about it is kept: shares that
//! round down, links between fast domains that cost nothing as soon as two stages share one, a norm that divides the
//! sequence length where the embedding is meant. Nothing else in this crate builds on it.
//!
//! A [`Block`] depends on the [`Cut`] alone, so that a search prices it once for all sizes of data and pipeline.

mod layers;
mod search;
mod system;

use std::str::FromStr;

use quadrille_spec::{Activation, Classic, Model, Norm, SpecError};

pub use layers::{Block, Layer, Pass, Time, Unit, layers};
pub use search::{Found, PUBLISHED_BATCH, Ranked, Search, training_steps};
pub use system::{Collective, Group, Network, System};

/// The largest size of a group, a fast domain or a microbatch; products of two of them and of a model's sizes fit into
/// 64 bits.
const MAX_SIZE: u64 = 1 << 24;

/// Bytes of optimizer states per byte of weights: 12 bytes a parameter against 2.
const OPTIMIZER_PER_WEIGHT: f64 = 6.0;

/// The sizes of a transformer that the model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Sequence length `L`.
    pub seq: u64,
    /// Embedding `E`.
    pub embed: u64,
    /// Hidden width of the perceptron `F`.
    pub ffn: u64,
    /// Heads `H`.
    pub heads: u64,
    /// Blocks `D`.
    pub depth: u64,
}

impl TryFrom<&Model> for Shape {
    type Error = SpecError;

    /// Positions, mask and ends of the network do not count.
    fn try_from(model: &Model) -> Result<Self, SpecError> {
        let refusal = |field, value: String, usual| {
            let rule = "LBNL's model prices blocks of GPT and ViT only";
            Err(SpecError::invalid(field, value, rule, format!("use {field} = {usual}, or another cost model")))
        };
        model.check_classic("LBNL's model")?;
        match &model.classic() {
            Classic { activation, .. } if *activation != Activation::Gelu => {
                refusal("activation", activation.to_string(), Activation::Gelu.to_string())
            }
            Classic { norm, .. } if *norm != Norm::Layer => refusal("norm", norm.to_string(), Norm::Layer.to_string()),
            Classic { heads, kv_heads, .. } if heads != kv_heads => {
                refusal("kv_heads", kv_heads.to_string(), heads.to_string())
            }
            Classic { seq_len, hidden, ffn, heads, layers, .. } => {
                let [seq, embed, ffn, heads, depth] = [seq_len, hidden, ffn, heads, layers].map(|size| *size as u64);
                Ok(Self { seq, embed, ffn, heads, depth })
            }
        }
    }
}

impl Shape {
    /// The models of the published outputs: the name there and the preset.
    pub const PUBLISHED: [(&str, &str); 3] = [("gpt3", "gpt3-175b"), ("gpt3_1T", "gpt3-1t"), ("vit_era5", "vit-era5")];

    /// The model of that published name, or the preset.
    ///
    /// # Errors
    /// A name that is neither; a preset whose blocks the model does not price.
    pub fn named(name: &str) -> Result<Self, SpecError> {
        let published = Self::PUBLISHED.iter().find(|(published, _)| *published == name);
        let preset = Model::preset(published.map_or(name, |(_, preset)| preset)).map_err(|_| {
            let known = Self::PUBLISHED.iter().map(|(name, _)| *name).chain(Model::preset_names());
            SpecError::Unknown { what: "model", name: name.to_owned(), known: known.map(str::to_owned).collect() }
        })?;
        Self::try_from(&preset)
    }

    /// The name of these sizes in the published outputs.
    pub fn published_name(self) -> Option<&'static str> {
        let published = Self::PUBLISHED.into_iter().map(|(name, _)| name);
        published.into_iter().find(|name| Self::named(name) == Ok(self))
    }
}

/// How a block is cut over devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Heads and hidden widths over one group, tokens over the same group between the products (Megatron-LM).
    OneD,
    /// The same over one group, and tokens over another (sequence or context parallelism).
    TwoD,
    /// Both operands of every linear layer over both groups, multiplied in panels; attention as in [`Self::TwoD`].
    Summa,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OneD, Self::TwoD, Self::Summa];

    /// `1d`, `2d` or `summa`, as in published outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneD => "1d",
            Self::TwoD => "2d",
            Self::Summa => "summa",
        }
    }
}

impl FromStr for Strategy {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == text).ok_or_else(|| SpecError::Unknown {
            what: "strategy",
            name: text.to_owned(),
            known: Self::ALL.map(|strategy| strategy.name().to_owned()).to_vec(),
        })
    }
}

/// What the price of a block depends on, besides model and system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Which layers are cut how.
    pub strategy: Strategy,
    /// Tensor-parallel group over heads and hidden widths: `m` or `m1`, `tp1` in published outputs.
    pub hidden: Group,
    /// Tensor-parallel group over the sequence: `m2`, `tp2` in published outputs; alone in [`Strategy::OneD`].
    pub sequence: Group,
    /// Sequences of a microbatch, `b`.
    pub microbatch: u64,
    /// Panels of SUMMA's products, `nb`; 0 in the other strategies.
    pub panels: u64,
}

/// A way to train on a number of devices: what the search ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// How a block is cut.
    pub cut: Cut,
    /// Data parallelism: `d`, `dp` in published outputs.
    pub data: Group,
    /// Pipeline parallelism: `p`, `pp` in published outputs.
    pub pipe: Group,
}

impl Configuration {
    /// The numbers `(d, m1, m2, p, b, nb, g1, g2, gd, gp)`, in the order of the published outputs; equal prices are
    /// ranked by them.
    pub fn numbers(&self) -> [u64; 10] {
        let Self { cut: Cut { hidden, sequence, microbatch, panels, .. }, data, pipe } = *self;
        let [sizes, fast] = [|group: Group| group.size, |group: Group| group.fast];
        let groups = [hidden, sequence, data, pipe];
        let [m1, m2, d, p] = groups.map(sizes);
        let [g1, g2, gd, gp] = groups.map(fast);
        [d, m1, m2, p, microbatch, panels, g1, g2, gd, gp]
    }

    /// The group that reduces gradients, which in [`Strategy::TwoD`] also spans the devices that cut the sequence.
    fn reducing(&self) -> Group {
        let Self { cut: Cut { strategy, sequence, .. }, data, .. } = *self;
        match strategy {
            Strategy::TwoD => Group { size: data.size * sequence.size, fast: data.fast * sequence.fast },
            Strategy::OneD | Strategy::Summa => data,
        }
    }

    /// Microbatches of a step on one pipeline, `M`.
    fn microbatches(&self, global_batch: u64) -> u64 {
        global_batch / self.data.size / self.cut.microbatch
    }

    /// Refuses what has no price. Sizes need not divide what they cut: shares round down. Fields carry the names of the
    /// published outputs.
    ///
    /// # Errors
    /// A size of 0, or one that leaves a device without a head, a layer, a microbatch or a share of the sequence; more
    /// members in a fast domain than the group or the domain has; panels, or a second group, of a strategy that has none.
    pub fn check(&self, shape: &Shape, system: &System, global_batch: u64) -> Result<(), SpecError> {
        let Self { cut: Cut { strategy, hidden, sequence, microbatch, panels }, data, pipe } = *self;
        let groups = [("dp", data), ("tp1", hidden), ("tp2", sequence), ("pp", pipe)];
        for (name, group) in groups {
            check_size(name, group.size)?;
            check_most(&format!("nvs_{name}"), group.fast, group.size, &format!("{name}, the size of the group"))?;
            check_most(&format!("nvs_{name}"), group.fast, system.fast_domain, "nvs, the size of the fast domain")?;
        }
        check_size("global_batch", global_batch)?;
        check_size("microbatch", microbatch)?;
        match strategy {
            Strategy::OneD => check_most("tp2", sequence.size, 1, "1: strategy 1d has one tensor-parallel group")?,
            Strategy::TwoD => {
                let fast = self.reducing().fast;
                check_most("nvs_dp*nvs_tp2", fast, system.fast_domain, "nvs: in 2d both reduce gradients together")?;
            }
            Strategy::Summa => {
                check_size("summa_nb", panels)?;
                check_most("tp1", hidden.size, shape.seq, "the tokens of a sequence, which summa's norm divides")?;
            }
        }
        if strategy != Strategy::Summa && panels != 0 {
            let rule = format!("strategy {} has no panels", strategy.name());
            return Err(SpecError::invalid("summa_nb", panels, rule, "use 0, or strategy summa"));
        }
        check_most("tp1", hidden.size, shape.heads, "the heads of the model")?;
        check_most("tp2", sequence.size, shape.seq, "the tokens of a sequence")?;
        check_most("pp", pipe.size, shape.depth, "the layers of the model")?;
        check_most("dp*microbatch", data.size * microbatch, global_batch, "the global batch")
    }
}

/// The price of a training step on one device. Times in seconds, of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// The step: the sum of the six times below.
    pub seconds: f64,
    /// Computation.
    pub compute: f64,
    /// What the memory takes longer than computation.
    pub memory: f64,
    /// Communication inside blocks that nothing hides.
    pub tensor_communication: f64,
    /// Reduction of gradients and gathering of weights, as far as no pass hides them.
    pub data_communication: f64,
    /// Messages between stages.
    pub pipe_communication: f64,
    /// Idle time of the pipeline.
    pub bubble: f64,
    /// FLOPs; vector work of fused attention counts as the products that take as long.
    pub flops: f64,
    /// Bytes of weights.
    pub weight_bytes: f64,
    /// Bytes of gradients.
    pub gradient_bytes: f64,
    /// Bytes of the optimizer's states.
    pub optimizer_bytes: f64,
    /// Bytes of activations of all microbatches that a stage holds at once.
    pub activation_bytes: f64,
}

impl Price {
    /// Bytes that a device holds: states and activations; no workspace, no reserve.
    pub fn memory_bytes(&self) -> f64 {
        self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.activation_bytes
    }

    /// Whether a device holds them.
    pub fn fits(&self, system: &System) -> bool {
        self.memory_bytes() <= system.memory_bytes
    }
}

impl Block {
    /// The price of a step of `configuration`, whose cut this block has (specification, sections 7 and 8).
    ///
    /// `configuration` is one that [`Configuration::check`] accepts.
    pub fn step(&self, shape: &Shape, system: &System, configuration: &Configuration, global_batch: u64) -> Price {
        let Configuration { cut, data, pipe } = *configuration;
        let stages = pipe.size as f64;
        let microbatches = configuration.microbatches(global_batch) as f64;
        let blocks = (shape.depth / pipe.size) as f64;
        let each =
            |seconds: fn(&Time) -> f64| microbatches * blocks * (seconds(&self.forward) + seconds(&self.backward));

        // One block's reduction and gather are always exposed; the others hide behind a block's pass.
        let exposed = |kind, pass: f64| {
            let seconds = system.communication(kind, self.weight_bytes, configuration.reducing());
            seconds + (blocks - 1.0) * (seconds - pass).max(0.0)
        };
        let data_communication = exposed(Collective::ReduceScatter, self.backward.total)
            + exposed(Collective::AllGather, self.forward.total);
        let pipe_communication = 2.0 * microbatches * link(system, pipe, self.boundary_bytes);
        let work = each(|time| time.total);
        let bubble = (stages - 1.0) * (work + pipe_communication) / microbatches;

        let weight_bytes = blocks * self.weight_bytes;
        let optimizer_shards = match cut.strategy {
            Strategy::TwoD => data.size * cut.sequence.size,
            Strategy::OneD | Strategy::Summa => data.size,
        };
        Price {
            seconds: work + pipe_communication + bubble + data_communication,
            compute: each(|time| time.compute),
            memory: each(|time| time.memory),
            tensor_communication: each(|time| time.communication),
            data_communication,
            pipe_communication,
            bubble,
            flops: microbatches * blocks * self.flops,
            weight_bytes,
            gradient_bytes: weight_bytes,
            optimizer_bytes: OPTIMIZER_PER_WEIGHT * weight_bytes / optimizer_shards as f64,
            activation_bytes: blocks * self.activation_bytes * stages.min(microbatches),
        }
    }
}

/// Seconds of a message between stages, the mean over the links of a pipeline (7.2). As soon as two stages share a fast
/// domain, the links between domains cost nothing, as in the paper's code.
fn link(system: &System, pipe: Group, bytes: f64) -> f64 {
    let message = system.communication(Collective::PointToPoint, bytes, Group { size: pipe.size.min(2), ..pipe });
    if pipe.fast == 1 || pipe.size == 1 {
        return message;
    }
    let links = pipe.size - 1;
    let slow = pipe.size / pipe.fast - 1;
    (links - slow) as f64 / links as f64 * message
}

/// Prices a step of `configuration` with a batch of `global_batch` sequences.
///
/// # Errors
/// Those of [`Configuration::check`].
pub fn price(
    shape: &Shape,
    system: &System,
    configuration: &Configuration,
    global_batch: u64,
) -> Result<Price, SpecError> {
    configuration.check(shape, system, global_batch)?;
    Ok(Block::new(shape, system, &configuration.cut).step(shape, system, configuration, global_batch))
}

/// Refuses a size of 0 and what no machine has, 2^24.
///
/// # Errors
/// Names `name`, its value and the rule.
fn check_size(name: &str, size: u64) -> Result<(), SpecError> {
    if size == 0 {
        return Err(SpecError::invalid(name, size, "it is at least 1", "use 1 or more"));
    }
    check_most(name, size, MAX_SIZE, "2^24")
}

/// Refuses 0 and more than `most`, which `what` describes.
fn check_most(name: &str, value: u64, most: u64, what: &str) -> Result<(), SpecError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(SpecError::invalid(name, value, format!("it is 1 to {most}, at most {what}"), format!("use {most} or less")))
}
