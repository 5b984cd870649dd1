//! Megatron-LM's analysis of pipeline, tensor and data parallelism (Narayanan et al., "Efficient Large-Scale Language
//! Model Training on GPU Clusters Using Megatron-LM", SC 2021): parameters, FLOPs, bubbles, volumes, training time, and
//! its takeaways as a planner.
//!
//! As published: GPT's equal layers with perceptrons of width `4h` (of a model only layers, hidden, heads, vocabulary and
//! sequence length count; [`check_described`] refuses others), pipeline flushes, four all-reduces a layer and microbatch,
//! bandwidths and latencies left out.
//!
//! Letters: `B` sequences in a batch, `b` in a microbatch, `s` tokens in a sequence, `h` hidden, `L` layers, `V`
//! vocabulary; `t`, `p`, `d` tensor, pipeline and data parallel sizes, `n = t p d` devices, `m = B/(b d)` microbatches of
//! a pipeline, `v` chunks of layers on a device.

mod advice;
mod configuration;
mod formulas;
mod plan;

pub use advice::{Advice, Machine, Memory, advise, memory, modelled_pass_seconds};
pub use configuration::Configuration;
pub use formulas::{
    Recomputation, activation_bytes, best_checkpoints, check_described, checkpoint_bytes, flops, layer_flops,
    parameters, training_seconds, training_seconds_by_flops,
};
pub use plan::{Plan, Quantities, UnknownDevice, known_device};
