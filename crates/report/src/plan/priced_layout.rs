//! A layout with its price: an entry of a plan, of a sweep, and the layout of `explain --price`.

use quadrille_cost::native::{Candidate, Parts, Price};
use quadrille_evidence::Band;
use quadrille_plan::goodput::Goodput;
use quadrille_plan::native::explain::Part;
use quadrille_plan::native::{Question, Ranked, Setting};
use quadrille_run::shown_layout;
use quadrille_spec::{Axis, Field, FlopsConvention, Imbalance, Layout, LayoutFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::band::band;
use super::page::Drawing;
use crate::candidate::{notation, others, recompute, schedule, sizes};

/// A layout with its price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PricedLayout {
    /// The layout in the usual notation: `TP4 PP2 DP8`.
    pub notation: String,
    /// Fields of a layout file.
    pub layout: LayoutFile,
    /// Number of devices.
    pub devices: usize,
    /// Seconds of a step.
    pub time_s: f64,
    /// Seconds of the parts of a step, which add up to `time_s`.
    pub parts_s: StepParts,
    /// Bytes of the rank that needs most.
    pub memory_bytes: u64,
    /// Bytes of that rank by class.
    pub memory: MemoryParts,
    /// Convention by which `model_flops`, `tflops_per_device` and `mfu` count.
    pub flops_convention: FlopsConvention,
    /// FLOPs that the model needs for a step, on all devices together.
    pub model_flops: f64,
    /// FLOPs that all devices execute in a step.
    pub executed_flops: f64,
    /// Needed FLOPs of a device in a second, in units of 10^12.
    pub tflops_per_device: f64,
    /// Model FLOPs utilization, from 0 to 1; 0 where the peak of the device is not known.
    pub mfu: f64,
    /// Hardware FLOPs utilization: of all executed FLOPs.
    pub hfu: f64,
    /// Tokens in a second of training.
    pub tokens_per_s: f64,
    /// Rows of experts of the fullest rank as a multiple of the mean; absent where loads are taken to be equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<f64>,
    /// Part of published runs that would fit, by what they took beside their tensors; absent where the device's memory is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitting_runs: Option<f64>,
    /// Useful time where devices fail; absent unless it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<GoodputReport>,
    /// Days of the whole training, expected ones with `goodput`; absent unless its tokens are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<f64>,
    /// Hours of all its devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_hours: Option<f64>,
    /// Price of these hours, in `currency`; absent unless the price of an hour is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Currency of `cost`, by its code of three letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Measured over predicted time of the published runs most like it; null where there are too few.
    pub error_band: Option<Band>,
    /// Reason why there is no error band; null where there is one.
    pub error_band_reason: Option<String>,
    /// Number of legal layouts of its grid and spreading of experts; absent where each variant is an entry of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variants: Option<u64>,
    /// Drawing of the layout, of pages alone.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub drawing: Option<Drawing>,
    /// Choices in the words of tables; no part of documents.
    #[serde(skip)]
    pub words: LayoutWords,
}

/// Seconds of a step by cause, on the stage that is busiest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepParts {
    /// Products, attention and element-wise work while arithmetic is the limit.
    pub compute: f64,
    /// Time that memory traffic adds to it.
    pub memory_bound: f64,
    /// Time that starting operations adds.
    pub launch: f64,
    /// Exposed communication, and the slowdown of kernels that overlap it.
    pub communication: CommunicationParts,
    /// Waiting for other stages of the pipeline.
    pub bubble: f64,
    /// The optimizer's update with the gradient norm.
    pub optimizer: f64,
    /// Waiting for tokens.
    pub tokens: f64,
}

/// Seconds of communication by axis; over several axes under the outermost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommunicationParts {
    /// Along x.
    pub x: f64,
    /// Along y.
    pub y: f64,
    /// Along z.
    pub z: f64,
    /// Along context.
    pub context: f64,
    /// Along expert; absent where the axis has one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert: Option<f64>,
    /// Along data.
    pub data: f64,
    /// Between stages of the pipeline.
    pub pipe: f64,
}

/// Bytes of the rank that needs most, by class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryParts {
    /// Shards of the parameters.
    pub parameters: u64,
    /// Gradients.
    pub gradients: u64,
    /// States of the optimizer.
    pub optimizer: u64,
    /// Activations retained for the backward pass, at the worst moment.
    pub activations: u64,
    /// Gathered weights, gradients in flight, scratch of a running operation.
    pub buffers: u64,
    /// The framework's context, communication buffers and the allocator's slack.
    pub framework: u64,
    /// Stage of that rank, from 0.
    pub stage: usize,
}

/// Useful part of the time where devices fail, with checkpoints at the best interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GoodputReport {
    /// Part of the expected time that is useful, from 0 to 1.
    pub share: f64,
    /// Seconds to write a checkpoint.
    pub checkpoint_s: f64,
    /// Steps between two checkpoints.
    pub interval_steps: u64,
    /// Seconds between two checkpoints.
    pub interval_s: f64,
    /// Failures of the job that are expected in a day.
    pub failures_per_day: f64,
}

/// Choices of a layout in the words of tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayoutWords {
    /// Sizes of axes: `x=8,data=16`.
    pub grid: String,
    /// Factors of axes inside a fast domain.
    pub domain: String,
    /// Sequences of a microbatch.
    pub microbatch: usize,
    /// Schedule with its chunks; `-` without a pipeline.
    pub schedule: String,
    /// Recomputation.
    pub recompute: String,
    /// Other choices that are not the usual ones.
    pub others: String,
}

impl PricedLayout {
    /// A layout of a candidate that has a price.
    pub fn new(question: &Question, setting: &Setting, ranked: &Ranked, layout: &Layout) -> Self {
        let Ranked { candidate, price } = ranked;
        let layout = shown_layout(layout);
        // Element types of other frameworks are in `planned`.
        let layout = if question.framework.is_own() { layout } else { layout.without(Field::Dtype) };
        let derived = question.derived(setting, ranked);
        let band = band(question, candidate);
        let is_equal = question.imbalance == Imbalance::EQUAL;
        let imbalance = (!is_equal).then(|| question.imbalance.times_in(setting.model, candidate.expert_ranks()));
        Self {
            notation: notation(candidate),
            layout,
            devices: candidate.devices(),
            time_s: price.seconds,
            parts_s: StepParts::new(&price.parts, candidate),
            memory_bytes: price.memory.total(),
            memory: MemoryParts::new(price),
            flops_convention: question.flops_convention,
            model_flops: derived.model_flops,
            executed_flops: price.executed_flops,
            tflops_per_device: derived.tflops_per_device,
            mfu: derived.mfu,
            hfu: derived.hfu,
            tokens_per_s: derived.tokens_per_second,
            imbalance,
            fitting_runs: derived.fitting_runs,
            goodput: derived.goodput.map(GoodputReport::from),
            days: derived.days,
            device_hours: derived.device_hours,
            cost: derived.cost,
            currency: derived.cost.map(|_| question.budget.currency.to_string()),
            error_band_reason: band.as_ref().err().map(ToString::to_string),
            error_band: band.ok(),
            variants: None,
            drawing: None,
            words: LayoutWords::new(candidate),
        }
    }

    /// A part of the step in percent: `12.3%`.
    pub(super) fn share(&self, part_s: f64) -> String {
        format!("{:.1}%", 100.0 * part_s / self.time_s)
    }
}

impl StepParts {
    fn new(parts: &Parts, candidate: &Candidate) -> Self {
        let [x, y, z, context, expert, data, pipe] = parts.communication;
        // Few layouts have an expert axis.
        let expert = Some(expert).filter(|_| candidate.size(Axis::Expert) > 1);
        Self {
            compute: parts.compute,
            memory_bound: parts.memory_bound,
            launch: parts.launch,
            communication: CommunicationParts { x, y, z, context, expert, data, pipe },
            bubble: parts.bubble,
            optimizer: parts.optimizer,
            tokens: parts.data_loading,
        }
    }

    /// Seconds of a part.
    pub fn of(&self, part: Part) -> f64 {
        match part {
            Part::Compute => self.compute,
            Part::MemoryBound => self.memory_bound,
            Part::Launch => self.launch,
            Part::Communication(axis) => self.communication.along(axis),
            Part::Bubble => self.bubble,
            Part::Optimizer => self.optimizer,
            Part::DataLoading => self.tokens,
        }
    }
}

impl CommunicationParts {
    /// Seconds along an axis.
    pub fn along(&self, axis: Axis) -> f64 {
        match axis {
            Axis::X => self.x,
            Axis::Y => self.y,
            Axis::Z => self.z,
            Axis::Context => self.context,
            Axis::Expert => self.expert.unwrap_or(0.0),
            Axis::Data => self.data,
            Axis::Pipe => self.pipe,
        }
    }
}

impl MemoryParts {
    fn new(price: &Price) -> Self {
        let memory = &price.memory;
        Self {
            parameters: memory.parameters,
            gradients: memory.gradients,
            optimizer: memory.optimizer,
            activations: memory.activations,
            buffers: memory.buffers,
            framework: memory.framework,
            stage: memory.stage,
        }
    }

    /// Bytes of every class by its name.
    pub fn by_class(&self) -> [(&'static str, u64); 6] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("activations", self.activations),
            ("buffers", self.buffers),
            ("framework", self.framework),
        ]
    }
}

impl From<Goodput> for GoodputReport {
    fn from(goodput: Goodput) -> Self {
        Self {
            share: goodput.share,
            checkpoint_s: goodput.checkpoint_seconds,
            interval_steps: goodput.interval_steps,
            interval_s: goodput.interval_seconds,
            failures_per_day: goodput.failures_per_day,
        }
    }
}

impl LayoutWords {
    fn new(candidate: &Candidate) -> Self {
        Self {
            grid: sizes(candidate.sizes),
            domain: sizes(candidate.inside),
            microbatch: candidate.microbatch,
            schedule: schedule(candidate),
            recompute: recompute(candidate),
            others: others(candidate),
        }
    }
}
