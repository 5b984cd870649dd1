//! The price of a step, from that of a block.

use quadrille_spec::SpecError;

use super::configuration::{Configuration, Strategy};
use super::layers::{Block, Time};
use super::shape::Shape;
use super::system::{Collective, Group, System};

/// Bytes of optimizer states per byte of weights: 12 bytes a parameter against 2.
const OPTIMIZER_PER_WEIGHT: f64 = 6.0;

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
