//! The constants of this machine that a simulation needs, measured on steps and all-reduces.

use std::collections::BTreeMap;

use quadrille_cost::simulation::{DeviceRates, RingNetwork, UniformMachine};
use quadrille_engine::{Device, Processor, TrainOptions, TrainOutcome};
use quadrille_spec::{Axis, CollectiveKind, ElementType, Grid, Layout, LayoutRequest, Model};
use quadrille_step::{At, Group, Op, StepProgram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::MeasureError;
use crate::collectives::{Run, time};
use crate::step::steps;

/// Elements of the all-reduces that give latency and bandwidth: nothing much, and the activations of a small layer.
const ALL_REDUCES: [usize; 2] = [1, 1 << 19];
/// Measured runs of each.
const RUNS: u32 = 51;

/// What one thread computes and a pair of ranks exchanges, as long as every rank has a core of its own.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct Constants {
    /// Of products.
    pub product_gflops: f64,
    /// Of attention, without causal discount.
    pub attention_gflops: f64,
    /// Of element-wise operations, every operand once.
    pub memory_gb_s: f64,
    /// Of an operation whose operands are tiny.
    pub operation_latency_us: f64,
    /// Of a message in a ring.
    pub message_latency_us: f64,
    /// Of a ring.
    pub ring_gb_s: f64,
}

impl Constants {
    /// Measures: a step of the model on two data ranks of a thread each, one of a tiny model, and all-reduces.
    ///
    /// # Errors
    /// The batch cannot be split in two; a job failed.
    pub fn measure(model: &Model, global_batch: usize, options: &TrainOptions) -> Result<Self, MeasureError> {
        let latency = operation_latency(&Processor, ElementType::F32, 2, options)?;
        let times = Times::measure(&Processor, ElementType::F32, model, [2, global_batch], options)?;
        let all_reduce = |elements: usize| {
            let run = Run::Collective(CollectiveKind::AllReduce);
            time(2, run.lengths(elements, elements / 2), RUNS, run)
        };
        let [small, large] = [all_reduce(ALL_REDUCES[0])?, all_reduce(ALL_REDUCES[1])?];
        // Each of two ranks sends half of the buffer twice.
        let bytes = (ALL_REDUCES[1] * size_of::<f32>()) as f64;
        Ok(Self {
            product_gflops: times.products.rate(times.products.flops, latency) / 1e9,
            attention_gflops: times.attention.rate(times.attention.flops, latency) / 1e9,
            memory_gb_s: times.element_wise.rate(times.element_wise.bytes, latency) / 1e9,
            operation_latency_us: 1e6 * latency,
            message_latency_us: 1e6 * small / 2.0,
            ring_gb_s: bytes / without_latency(large, small) / 1e9,
        })
    }

    /// The mean of two measurements.
    pub fn mean(&self, other: &Self) -> Self {
        let mean = |of: fn(&Self) -> f64| (of(self) + of(other)) / 2.0;
        Self {
            product_gflops: mean(|each| each.product_gflops),
            attention_gflops: mean(|each| each.attention_gflops),
            memory_gb_s: mean(|each| each.memory_gb_s),
            operation_latency_us: mean(|each| each.operation_latency_us),
            message_latency_us: mean(|each| each.message_latency_us),
            ring_gb_s: mean(|each| each.ring_gb_s),
        }
    }

    /// The machine when `crowding` ranks share a core.
    pub fn machine(&self, crowding: f64) -> UniformMachine {
        UniformMachine {
            rates: DeviceRates {
                gemm_flop_per_s: 1e9 * self.product_gflops / crowding,
                attention_flop_per_s: 1e9 * self.attention_gflops / crowding,
                memory_bytes_per_s: 1e9 * self.memory_gb_s / crowding,
                operation_latency_s: 1e-6 * self.operation_latency_us * crowding,
            },
            network: RingNetwork {
                latency_s: 1e-6 * self.message_latency_us * crowding,
                bandwidths: [1e9 * self.ring_gb_s / crowding; Axis::COUNT],
            },
        }
    }
}

/// Mean seconds of an operation of the engine whose operands are tiny: in steps of a tiny model on so many data ranks, in this type.
/// On a device that is what the host takes to begin it.
///
/// # Errors
/// The job failed.
pub fn operation_latency(
    device: &dyn Device,
    dtype: ElementType,
    ranks: usize,
    options: &TrainOptions,
) -> Result<f64, MeasureError> {
    let tiny = "name = \"tiny\"\nlayers = 4\nhidden = 8\nheads = 1\nvocab = 8\nseq_len = 4";
    let tiny = Times::measure(device, dtype, &Model::from_toml(tiny, &[])?, [ranks, ranks], options)?;
    let all = [tiny.products, tiny.attention, tiny.element_wise];
    Ok(all.iter().map(|kind| kind.seconds).sum::<f64>() / all.iter().map(|kind| kind.operations).sum::<f64>())
}

/// Operations of one kind in a step of a rank.
#[derive(Clone, Copy, Default)]
struct Kind {
    seconds: f64,
    operations: f64,
    flops: f64,
    bytes: f64,
}

impl Kind {
    /// Amount per second, the latency of operations set aside.
    fn rate(&self, amount: f64, latency: f64) -> f64 {
        amount / without_latency(self.seconds, self.operations * latency)
    }
}

/// What is left of a time without its latency; half of it at least, for what is as small as what latency was measured on.
pub(crate) fn without_latency(seconds: f64, latency: f64) -> f64 {
    (seconds - latency).max(seconds / 2.0)
}

/// The operations of a rank's step.
#[derive(Default)]
struct Times {
    products: Kind,
    attention: Kind,
    element_wise: Kind,
}

impl Times {
    /// On so many data ranks, of so many sequences in one pass.
    fn measure(
        device: &dyn Device,
        dtype: ElementType,
        model: &Model,
        [ranks, global_batch]: [usize; 2],
        options: &TrainOptions,
    ) -> Result<Self, MeasureError> {
        let request = LayoutRequest { dtype, ..LayoutRequest::new(Grid::new(1, 1, 1, ranks)?, global_batch) };
        let program = StepProgram::new(model, &Layout::new(model, &request)?)?;
        let outcome = steps(device, &program, options)?;
        Ok(Self::of(&program, &outcome, options.steps - 1))
    }

    fn of(program: &StepProgram, outcome: &TrainOutcome, steps: u64) -> Self {
        let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, each) in outcome.ranks.iter().flat_map(|rank| &rank.breakdown) {
            *seconds.entry(name).or_default() += each / (steps as usize * outcome.ranks.len()) as f64;
        }
        let mut times = Self::default();
        for stage in &program.stages {
            let sections = stage.chunks.iter().flat_map(|chunk| chunk.sections()).chain([&stage.update]);
            for Op { operation, .. } in
                sections.flat_map(|section| &section.ops).filter(|op| op.operation.group().computes())
            {
                let work = operation.work(At::first(stage));
                let kind = match operation.group() {
                    Group::Product => &mut times.products,
                    Group::Attention => &mut times.attention,
                    _ => &mut times.element_wise,
                };
                kind.operations += 1.0;
                kind.flops += work.flops() as f64;
                kind.bytes += work.moved as f64;
                // All operations of a name together: the first takes it.
                kind.seconds += seconds.remove(operation.name()).unwrap_or(0.0);
            }
        }
        times
    }
}
