//! What a layout costs.

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
    /// twice.
    pub model_flops: f64,
    /// FLOPs that the devices execute: with recomputation, padding and repeated work.
    pub executed_flops: f64,
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
    /// Communication that nothing hides, by axis in the order of `Axis::ALL`; over several axes: under the outermost.
    pub communication: [f64; 6],
    /// Waiting for other stages.
    pub bubble: f64,
    /// The optimizer's update with the gradient norm.
    pub optimizer: f64,
}

/// Bytes of the rank that needs most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
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
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.activations + self.buffers + self.framework
    }
}
