//! A whole optimizer step beside the rate of the matrix library, which is the yardstick.
//!
//! Letters: L layers, h hidden, f perceptron width, V vocabulary, T tokens of a sequence.

use std::collections::BTreeMap;

use quadrille_comm::memory;
use quadrille_engine::{
    Device, DeviceUse, EngineError, GraphUse, TrainOptions, TrainOutcome, Yardstick, random_full_batch,
};
use quadrille_run::{OpenLayout, RunError};
use quadrille_spec::{Axis, Block, Field, Grid, Layout, LayoutRequest, Model, SpecError};
use quadrille_step::StepProgram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::MeasureError;
use crate::timing::median;

/// Sequences of a measured step where nobody says how many.
const GLOBAL_BATCH: usize = 4;
/// Tokens of a sequence of it, of models that take as many.
const SEQ_LEN: usize = 256;

/// The layout of a step that is to be measured: where nothing is said of its batch, a small one that its axes cut.
///
/// # Errors
/// A layout that the model does not allow.
pub fn layout(mut open: OpenLayout, model: &Model) -> Result<Layout, RunError> {
    let request = &mut open.request;
    // What scattered activations need; a grid that is still to be chosen does with less.
    let cut = [Axis::Y, Axis::Z].into_iter().chain(Axis::BATCH).map(|axis| request.grid.size(axis));
    let cut = cut.product::<usize>().saturating_mul(request.overlap_chunks).max(1);
    if open.said.get(Field::GlobalBatch).is_none() {
        request.global_batch = GLOBAL_BATCH.checked_next_multiple_of(cut).unwrap_or(cut);
        open.usual_batch = false;
    }
    request.seq_len = request.seq_len.or(Some(SEQ_LEN.min(model.seq_len)));
    open.resolve(model)
}

/// Steps, in seconds and beside the yardstick.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredStep {
    /// What ranks computed on; `None`: the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Of each rank.
    pub threads: usize,
    /// Measured ones.
    pub steps: u64,
    /// Milliseconds of a step, the median.
    pub step_ms: f64,
    /// Of every measured step, in order.
    pub step_ms_each: Vec<f64>,
    /// Of all ranks together.
    pub tokens_per_second: f64,
    /// Of products and attention, from the model's sizes: padding and replicated work do not count.
    pub flops_per_step: u64,
    /// Billions of these FLOPs a second.
    pub gflops: f64,
    /// What the matrix library reaches with as many threads as all ranks have together, or that of the device.
    pub gemm_gflops: f64,
    /// In a product of these sizes, `[m, n, k]`.
    pub gemm_size: [usize; 3],
    /// The same before and after the steps, of which the larger counts: far apart on a machine that is not quiet.
    pub gemm_gflops_each: [f64; 2],
    /// `gflops / gemm_gflops`.
    pub ratio: f64,
    /// The most resident memory of the process up to the last measured step, where the system tells.
    pub peak_rss_bytes: Option<u64>,
    /// Buffers and optimizer states of all ranks.
    pub allocated_bytes: u64,
    /// What each rank held on its device; `None`: ranks have the host's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Vec<DeviceUse>>,
    /// What all ranks did with graphs of their kernels; `None`: none are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_graphs: Option<GraphUse>,
    /// By operation kind; `wait` is communication that computation did not hide.
    pub breakdown: BTreeMap<String, Share>,
    /// Where it was asked for and there are several ranks.
    #[serde(flatten)]
    pub scaling: Option<Scaling>,
}

/// Time of one operation kind in a step, the mean over measured steps and ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Seconds of a step.
    pub seconds: f64,
    /// Of the mean step.
    pub percent: f64,
}

/// The same batch on one rank with the threads of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scaling {
    /// What one rank trains on.
    pub one_rank_tokens_per_second: f64,
    /// Throughput over that of one rank.
    pub scaling: f64,
}

/// Trains on random samples for the steps of the options, of which the first warms up; with `scaling` also on one rank with
/// the threads of all, if there are several. The yardstick is run before and after.
///
/// # Errors
/// A rank's failure, or the device's; a batch that one rank cannot take.
pub fn measure(
    device: &dyn Device,
    program: &StepProgram,
    options: &TrainOptions,
    scaling: bool,
) -> Result<MeasuredStep, MeasureError> {
    let layout = &program.layout;
    let ranks = layout.grid.ranks();
    let tokens = layout.tokens_per_step() as f64;
    let yardstick = || device.yardstick(layout.dtype, ranks, options.threads);
    let before = yardstick()?;
    let outcome = steps(device, program, options)?;
    let peak_rss_bytes = memory::peak();
    let gemm_gflops_each = [before, yardstick()?].map(|Yardstick { flops_per_second, .. }| flops_per_second / 1e9);
    let gemm_gflops = gemm_gflops_each[0].max(gemm_gflops_each[1]);
    let step_seconds = median_step(&outcome);
    let scaling =
        if scaling && ranks > 1 { Some(one_rank(device, program, options, tokens / step_seconds)?) } else { None };
    let flops_per_step = flops_per_token(&program.model, layout.seq_len) * layout.tokens_per_step() as u64;
    let gflops = flops_per_step as f64 / step_seconds / 1e9;
    Ok(MeasuredStep {
        device: device.name()?,
        threads: options.threads,
        steps: options.steps - 1,
        step_ms: 1e3 * step_seconds,
        step_ms_each: measured(&outcome).map(|seconds| 1e3 * seconds).collect(),
        tokens_per_second: tokens / step_seconds,
        flops_per_step,
        gflops,
        gemm_gflops,
        gemm_size: before.size,
        gemm_gflops_each,
        ratio: gflops / gemm_gflops,
        peak_rss_bytes,
        allocated_bytes: outcome
            .counted
            .iter()
            .flat_map(|counted| &counted.ranks)
            .map(|rank| rank.memory.allocated)
            .sum(),
        device_memory: outcome.ranks.iter().map(|rank| rank.device_memory).collect(),
        device_graphs: outcome.device_graphs(),
        breakdown: breakdown(&outcome),
        scaling,
    })
}

/// Trains on random samples.
pub(crate) fn steps(
    device: &dyn Device,
    program: &StepProgram,
    options: &TrainOptions,
) -> Result<TrainOutcome, EngineError> {
    let batch = random_full_batch(&program.model, options.seed, program.layout.seq_len);
    device.train(program, options, &batch, None, &mut |_| Ok(()))
}

/// Seconds of every step but the first.
pub(crate) fn measured(outcome: &TrainOutcome) -> impl Iterator<Item = f64> {
    outcome.records.iter().skip(1).map(|record| record.seconds)
}

fn median_step(outcome: &TrainOutcome) -> f64 {
    median(measured(outcome).collect())
}

/// Runs the batch on one rank, in one pass, with the threads of all ranks.
fn one_rank(
    device: &dyn Device,
    program: &StepProgram,
    options: &TrainOptions,
    throughput: f64,
) -> Result<Scaling, MeasureError> {
    let layout = &program.layout;
    let alone = StepProgram::new(&program.model, &on_one_rank(&program.model, layout)?)?;
    let options = TrainOptions { threads: layout.grid.ranks() * options.threads, ..options.clone() };
    let seconds = median_step(&steps(device, &alone, &options)?);
    let one_rank_tokens_per_second = layout.tokens_per_step() as f64 / seconds;
    Ok(Scaling { one_rank_tokens_per_second, scaling: throughput / one_rank_tokens_per_second })
}

/// The same batch and types, uncut.
fn on_one_rank(model: &Model, layout: &Layout) -> Result<Layout, SpecError> {
    let request = LayoutRequest {
        activations: layout.activations,
        overlap: layout.overlap,
        seq_len: Some(layout.seq_len),
        dtype: layout.dtype,
        vocab_multiple: layout.vocab_multiple,
        gradients: Some(layout.gradients),
        ..LayoutRequest::new(Grid::new(1, 1, 1, 1)?, layout.global_batch)
    };
    Layout::new(model, &request)
}

/// Forward and backward: 6 FLOPs per token and weight that is multiplied, 4 where no gradient goes further back (the
/// embedding of patches), 6 T, or a window's keys, and the widths of all queries and of all results per layer in attention, without
/// causal discount.
fn flops_per_token(model: &Model, seq_len: usize) -> u64 {
    let [h, v] = [model.hidden, model.vocab].map(|size| size as u64);
    let of_block = |block: &Block| {
        let attention = block.attention.keys(seq_len) * block.attention.flops_of_pair();
        (6.0 * block.product_weights(model.hidden, seq_len)) as u64 + 3 * attention as u64
    };
    let ends = match model.patch_values {
        None => 6 * v * h,
        Some(values) => (4 + 6) * values as u64 * h,
    };
    model.blocks.iter().map(of_block).sum::<u64>() + ends
}

/// Mean seconds of a step by operation kind.
fn breakdown(outcome: &TrainOutcome) -> BTreeMap<String, Share> {
    let steps: Vec<f64> = measured(outcome).collect();
    let divisor = (steps.len() * outcome.ranks.len()) as f64;
    let mean_step = steps.iter().sum::<f64>() / steps.len() as f64;
    let mut breakdown: BTreeMap<String, Share> = BTreeMap::new();
    for (name, seconds) in outcome.ranks.iter().flat_map(|rank| &rank.breakdown) {
        let share = breakdown.entry(name.clone()).or_default();
        share.seconds += seconds / divisor;
        share.percent = 100.0 * share.seconds / mean_step;
    }
    breakdown
}

#[cfg(test)]
mod tests {
    use quadrille_step::predict;

    use super::*;

    /// On one rank nothing is padded or done twice: the model's FLOPs are those of the program.
    #[test]
    fn flops_of_the_model_are_those_of_one_rank() {
        let windows = "name = \"w\"\nlayers = 4\nhidden = 8\nheads = 2\nvocab = 16\nseq_len = 16\nwindow = 5\n[[blocks]]\n\
                       every = 2\nfrom = 1\nwindow = 0\n";
        let presets = ["gpt-tiny", "gpt2-124m", "llama-tiny", "vit-tiny"].map(|name| Model::preset(name).unwrap());
        for model in presets.into_iter().chain([Model::from_toml(windows, &[]).unwrap()]) {
            let grid = Grid::new(1, 1, 1, 1).unwrap();
            let request = LayoutRequest { seq_len: Some(16), ..LayoutRequest::new(grid, 4) };
            let layout = Layout::new(&model, &request).unwrap();
            let counted = predict(&StepProgram::new(&model, &layout).unwrap()).ranks[0].flops.total();
            assert_eq!(flops_per_token(&model, 16) * layout.tokens_per_step() as u64, counted, "{}", model.name);
        }
    }
}
