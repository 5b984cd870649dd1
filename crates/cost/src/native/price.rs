//! What a layout costs.

use quadrille_spec::{Axis, FlopsConvention, Model};

use super::Candidate;

/// Seconds, bytes and FLOPs of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Seconds of a step, the sum of `parts`.
    pub seconds: f64,
    /// What the seconds are spent on.
    pub parts: Parts,
    /// Memory of the rank that needs most.
    pub memory: Memory,
    /// FLOPs that the model needs for the step, over all devices: products and attention forward and backward, nothing
    /// twice, attention of the keys of its window without causal discount (Narayanan et al. 2021, equation 3, less
    /// recomputation).
    pub model_flops: f64,
    /// FLOPs that the devices execute, counted alike: with recomputation, padding and repeated work.
    pub executed_flops: f64,
}

impl Price {
    /// The price of a layout with the FLOPs that the model needs counted by a convention, in sequences of `seq_len`.
    #[must_use]
    pub fn counted_by(
        self,
        convention: FlopsConvention,
        model: &Model,
        candidate: &Candidate,
        [global_batch, seq_len]: [usize; 2],
    ) -> Self {
        let parts = candidate.size(Axis::X) * candidate.size(Axis::Y) * candidate.vocab_multiple;
        let of_token = convention.of_token(model, seq_len, model.vocab.next_multiple_of(parts));
        let model_flops = of_token.map_or(self.model_flops, |flops| flops * (global_batch * seq_len) as f64);
        Self { model_flops, ..self }
    }

    /// FLOP/s of each of so many devices that the model needs, in 10^12.
    pub fn tflops_per_device(&self, devices: usize) -> f64 {
        self.model_flops / (self.seconds * devices as f64 * 1e12)
    }

    /// Model FLOPs utilization: the needed FLOPs over what `devices` devices of `peak` FLOP/s could have done.
    pub fn mfu(&self, devices: usize, peak: f64) -> f64 {
        self.model_flops / (self.seconds * devices as f64 * peak)
    }

    /// Hardware FLOPs utilization: the executed FLOPs over the same.
    pub fn hfu(&self, devices: usize, peak: f64) -> f64 {
        self.executed_flops / (self.seconds * devices as f64 * peak)
    }
}

/// Seconds of a step by cause, on the stage that is busiest; they add up to the step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parts {
    /// Products, attention and element-wise work while the arithmetic units are the limit.
    pub compute: f64,
    /// What memory traffic adds to it.
    pub memory_bound: f64,
    /// What starting operations adds.
    pub launch: f64,
    /// Communication: what nothing hides of it, and what kernels beside it lose; by axis in the order of `Axis::ALL`, over
    /// several axes under the outermost.
    pub communication: [f64; Axis::COUNT],
    /// Waiting for other stages.
    pub bubble: f64,
    /// The optimizer's update with the gradient norm.
    pub optimizer: f64,
    /// Waiting for tokens.
    pub data_loading: f64,
}

impl Parts {
    /// Of nothing.
    pub const NONE: Self = Self {
        compute: 0.0,
        memory_bound: 0.0,
        launch: 0.0,
        communication: [0.0; Axis::COUNT],
        bubble: 0.0,
        optimizer: 0.0,
        data_loading: 0.0,
    };

    /// Seconds of all parts.
    pub fn total(&self) -> f64 {
        let Self { compute, memory_bound, launch, communication, bubble, optimizer, data_loading } = self;
        compute + memory_bound + launch + communication.iter().sum::<f64>() + bubble + optimizer + data_loading
    }
}

/// Bytes of the rank that needs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// The stage of that rank.
    pub stage: usize,
    /// Shards of the parameters.
    pub parameters: u64,
    /// Gradients.
    pub gradients: u64,
    /// States of the optimizer.
    pub optimizer: u64,
    /// Activations kept for the backward pass, at the worst moment.
    pub activations: u64,
    /// Gathered weights, gradients on their way, what an operation needs while it runs.
    pub buffers: u64,
    /// The framework's context, communication buffers and the allocator's loss.
    pub framework: u64,
}

impl Memory {
    /// Of nothing.
    pub const NONE: Self =
        Self { stage: 0, parameters: 0, gradients: 0, optimizer: 0, activations: 0, buffers: 0, framework: 0 };

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.activations + self.buffers + self.framework
    }
}
