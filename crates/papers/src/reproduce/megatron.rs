//! Megatron-LM: tables 1 and 2, the estimates, and bubbles of our schedules.

use crate::megatron::{Configuration, checkpoint_bytes, parameters, training_seconds, training_seconds_by_flops};
use quadrille_spec::{Model, Schedule, SpecError};
use serde::Deserialize;

use super::bubble;
use super::point::Point;
use super::printed::{Printed, read};

const SECONDS_PER_DAY: f64 = 86_400.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    peak_tflops: f64,
    sequence: usize,
    vocabulary: usize,
    whole_numbers: String,
    weak_scaling: Vec<Row>,
    days: Days,
    estimates: Vec<Estimate>,
    sizes: Vec<Size>,
    checkpoint: Checkpoint,
    scatter_gather: ScatterGather,
    bubbles: Vec<Bubble>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    model: String,
    parameters_billion: Printed,
    gpus: usize,
    tflops_per_gpu: f64,
    peak_percent: Printed,
    pflops: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Days {
    tokens_billion: f64,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    scheme: String,
    model: String,
    gpus: usize,
    tflops_per_gpu: f64,
    days: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Estimate {
    model: String,
    gpus: usize,
    tokens_billion: f64,
    tflops_per_gpu: f64,
    days: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    source: String,
    model: String,
    layers: usize,
    hidden: usize,
    parameters_billion: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    model: String,
    terabytes: Printed,
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScatterGather {
    tensor: usize,
    times_less: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bubble {
    source: String,
    schedule: String,
    pipeline: usize,
    #[serde(default = "one")]
    data: usize,
    #[serde(default = "one")]
    chunks: usize,
    microbatches: usize,
    bubble: Printed,
}

fn one() -> usize {
    1
}

impl File {
    /// A preset with the paper's vocabulary and sequence length.
    fn model(&self, name: &str) -> Result<Model, SpecError> {
        Ok(Model { vocab: self.vocabulary, seq_len: self.sequence, ..Model::preset(name)? })
    }
}

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("megatron.toml", include_str!("../../published/megatron.toml"))?;
    let parts = [table_1(&file)?, table_2(&file)?, estimates(&file)?, sizes(&file)?, others(&file)?, bubbles(&file)?];
    Ok(parts.concat())
}

fn table_1(file: &File) -> Result<Vec<Point>, SpecError> {
    let mut points = Vec::new();
    for row in &file.weak_scaling {
        let point = |what: &str, published, ours, unit| {
            Point::new(format!("{}: {what}", row.model), "table 1", published, ours, unit).because(&file.whole_numbers)
        };
        let billions = parameters(&file.model(&row.model)?) / 1e9;
        let percent = 100.0 * row.tflops_per_gpu / file.peak_tflops;
        let pflops = row.tflops_per_gpu * row.gpus as f64 / 1e3;
        points.push(point("parameters", row.parameters_billion, billions, "billion"));
        points.push(point("share of peak", row.peak_percent, percent, "%"));
        points.push(point("all GPUs", row.pflops, pflops, "PFLOP/s"));
    }
    Ok(points)
}

/// Days by equation 3.
fn table_2(file: &File) -> Result<Vec<Point>, SpecError> {
    let point = |run: &Run| {
        let rate = run.tflops_per_gpu * 1e12 * run.gpus as f64;
        let seconds = training_seconds_by_flops(&file.model(&run.model)?, file.days.tokens_billion * 1e9, rate);
        let what = format!("{} {}, {} GPUs: training by eq. 3", run.model, run.scheme, run.gpus);
        Ok(Point::new(what, "table 2", run.days, seconds / SECONDS_PER_DAY, "days").because(&file.whole_numbers))
    };
    file.days.runs.iter().map(point).collect()
}

/// Days by equation 4.
fn estimates(file: &File) -> Result<Vec<Point>, SpecError> {
    let point = |estimate: &Estimate| {
        let parameters = parameters(&file.model(&estimate.model)?);
        let tokens = estimate.tokens_billion * 1e9;
        let rate = estimate.tflops_per_gpu * 1e12;
        let seconds = training_seconds(parameters, tokens, estimate.gpus, rate);
        let what = format!("{}, {} GPUs: training by eq. 4", estimate.model, estimate.gpus);
        Ok(Point::new(what, "section 5.1", estimate.days, seconds / SECONDS_PER_DAY, "days"))
    };
    file.estimates.iter().map(point).collect()
}

fn sizes(file: &File) -> Result<Vec<Point>, SpecError> {
    let point = |size: &Size| {
        // Equation 2 asks for no more than these and the paper's vocabulary and sequence length.
        let model = file.model("gpt3-175b")?.reshaped(|m| {
            m.layers = size.layers;
            m.hidden = size.hidden;
        });
        let what = format!("{}: parameters", size.model);
        Ok(Point::new(what, size.source.as_str(), size.parameters_billion, parameters(&model) / 1e9, "billion"))
    };
    file.sizes.iter().map(point).collect()
}

fn others(file: &File) -> Result<Vec<Point>, SpecError> {
    let Checkpoint { model, terabytes, note } = &file.checkpoint;
    let bytes = checkpoint_bytes(parameters(&file.model(model)?));
    let what = format!("{model}: checkpoint");
    let checkpoint = Point::new(what, "section 5.10", *terabytes, bytes / 1e12, "TB").because(note);
    let ScatterGather { tensor, times_less } = file.scatter_gather;
    let sizes = Configuration::new(tensor, 2, 1, 1)?;
    let model = file.model(model)?;
    let less = sizes.boundary_elements(&model, 1) / sizes.scattered_boundary_elements(&model, 1);
    let what = format!("scatter/gather, tensor={tensor}: less to the next stage");
    Ok(vec![checkpoint, Point::new(what, "section 4.1", times_less, less, "x")])
}

fn bubbles(file: &File) -> Result<Vec<Point>, SpecError> {
    let point = |entry: &Bubble| {
        let schedule: Schedule = entry.schedule.parse()?;
        let simulated = bubble::simulated(schedule, entry.pipeline, entry.chunks, entry.microbatches)?;
        let mut sizes = format!("p={} m={}", entry.pipeline, entry.microbatches);
        if entry.chunks > 1 {
            sizes += &format!(" v={}", entry.chunks);
        }
        if entry.data > 1 {
            sizes += &format!(" d={}", entry.data);
        }
        let what = format!("{schedule}, {sizes}: bubble of our schedule, simulated");
        Ok(Point::new(what, entry.source.as_str(), entry.bubble, simulated, "of ideal time"))
    };
    file.bubbles.iter().map(point).collect()
}
