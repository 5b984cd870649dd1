//! The takeaways of Narayanan et al. as a planner, and the memory by which it judges what fits.

use quadrille_spec::{Device, ElementType, Model, SpecError};

use super::configuration::{Configuration, MOST, check_positive};
use super::formulas::{Recomputation, check_described, layer_flops, parameters};

/// Bytes of a parameter's states in mixed precision: weight and gradient in f32 (4 + 4) and in half precision (2 + 2),
/// Adam's two moments (4 + 4). The paper prints no number; this one is S. Singh's dissertation's, chapter 3.
const STATE_BYTES: f64 = 20.0;

/// Bytes of an activation, half precision.
const ACTIVATION_BYTES: f64 = 2.0;

/// Bytes of a logit. Assumed: in half precision and in f32, for the loss.
const LOGIT_BYTES: f64 = 6.0;

/// The fullest device's memory in bytes: a device of the first stage, with a checkpoint at the input of every layer
/// (section 3.5: every one or two layers).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Weights, gradients and optimizer states: 20 bytes of each of `P/(t p)` parameters.
    pub states: f64,
    /// `c A_input` of each microbatch in flight, `min(p, m)` of them: `A_input = 2 b s h` bytes, `c = L/p`.
    pub inputs: f64,
    /// `A_intermediate` of the one layer that is computed again.
    pub intermediate: f64,
    /// `6 b s V/t` bytes of logits, where the first stage is the last one too.
    pub logits: f64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.states + self.inputs + self.intermediate + self.logits
    }
}

/// Estimates the fullest device's memory by the terms of section 3.5 and the states of mixed precision.
///
/// `A_intermediate` is a symbol in the paper; assumed here: what a layer's backward pass reads, `2 b s h (4 + 12/t)` bytes
/// of inputs and outputs of norms and products, and the attention probabilities, `2 b a s^2/t`. Masks of dropout and
/// buffers of communication are not counted.
///
/// With `chunks > 1` of layers on a device, of the interleaved schedule, more is in flight: by Megatron-LM's order
/// `2(p-1) + (v-1)p + 1` of the `m v` pairs of microbatch and chunk, a `v`-th of the stage's layers each.
///
/// # Errors
/// Those of [`Configuration::microbatches`]; no chunk.
pub fn memory(model: &Model, configuration: &Configuration, batch: usize, chunks: usize) -> Result<Memory, SpecError> {
    check_positive("chunks", chunks)?;
    let microbatches = configuration.microbatches(batch)? as f64;
    let p = configuration.pipeline as f64;
    let v = chunks as f64;
    let in_flight = if chunks == 1 { p } else { (2.0 * (p - 1.0) + (v - 1.0) * p + 1.0) / v };
    let s = model.seq_len as f64;
    let heads = model.classic().heads as f64;
    let t = configuration.tensor as f64;
    let boundary = configuration.boundary(model);
    let probabilities = configuration.microbatch as f64 * heads * s * s;
    let layers = model.layers().div_ceil(configuration.pipeline) as f64;
    let logits =
        if configuration.pipeline == 1 { configuration.microbatch as f64 * s * model.vocab as f64 / t } else { 0.0 };
    Ok(Memory {
        states: STATE_BYTES * parameters(model) / configuration.model_parallel() as f64,
        inputs: ACTIVATION_BYTES * in_flight.min(microbatches) * layers * boundary,
        intermediate: ACTIVATION_BYTES * (boundary * (4.0 + 12.0 / t) + probabilities / t),
        logits: LOGIT_BYTES * logits,
    })
}

/// Models `t_f(b) + t_b(b)`, which the paper measures: the FLOPs of a stage's layers with recomputation, at the rate that
/// `device` reaches in the first product of the perceptron, `b s x h x 4h/t` in half precision, and one launch.
pub fn modelled_pass_seconds(model: &Model, configuration: &Configuration, device: &Device) -> f64 {
    let [tensor, pipeline] = [configuration.tensor, configuration.pipeline].map(|size| size as f64);
    let [rows, hidden] = [configuration.microbatch * model.seq_len, model.hidden].map(|size| size as f64);
    let rate = device.peak.of(ElementType::F16).unwrap_or(device.peak.single)
        * device.half_products.as_ref().unwrap_or(&device.products).at([rows, 4.0 * hidden / tensor, hidden]);
    let layer = layer_flops(configuration.microbatch, model.seq_len, model.hidden, Recomputation::Full);
    device.launch_seconds + model.layers() as f64 / pipeline * layer / tensor / rate
}

/// The devices to plan for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// `n`.
    pub devices: usize,
    /// Devices in a node, joined by the fast links.
    pub per_node: usize,
    /// Bytes of memory of a device.
    pub device_memory: f64,
}

/// What the takeaways advise, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// `t`, `p`, `d`, `b`.
    pub configuration: Configuration,
    /// `v`: chunks of layers on a device; above 1 the schedule is the interleaved one.
    pub chunks: usize,
    /// The fullest device's memory.
    pub memory: Memory,
    /// Why these sizes: tensor, pipeline, data, microbatch, chunks.
    pub reasons: [String; 5],
}

/// Chooses sizes by the takeaways of sections 3.2 to 3.4 for batches of `batch` sequences.
///
/// The model-parallel size is the least that fits with microbatches of one sequence (takeaway 2), first by tensor
/// parallelism inside a node, then by pipeline stages of equal numbers of layers (takeaway 1); all other devices hold
/// copies. The microbatch is the one of least [`Configuration::batch_seconds`] that fits (takeaway 3), where
/// `pass_seconds` is `t_f(b) + t_b(b)`, measured or modelled: in proportion to `b`, one sequence is always best.
///
/// Where the schedule of section 2.2.2 is possible and fits, layers are interleaved. The paper has no rule for the number
/// of chunks; the fewest are taken, since messages between stages grow with them.
///
/// # Errors
/// A model that [`check_described`] refuses. No devices, nodes or sequences, or more than 2^24; memory that is no positive number; no configuration whose sizes
/// divide heads, layers, devices and batch; none that fits.
pub fn advise(
    model: &Model,
    machine: &Machine,
    batch: usize,
    pass_seconds: impl Fn(&Configuration) -> f64,
) -> Result<Advice, SpecError> {
    check_described(model)?;
    for (name, count) in [("devices", machine.devices), ("per-node", machine.per_node), ("batch", batch)] {
        if !(1..=MOST).contains(&count) {
            return Err(SpecError::invalid(name, count, "it lies in 1..=2^24", "give a number in between"));
        }
    }
    if !(machine.device_memory.is_finite() && machine.device_memory > 0.0) {
        let rule = "a device has a positive number of bytes";
        return Err(SpecError::invalid("device_memory", machine.device_memory, rule, "give bytes, e.g. 80e9"));
    }
    let mut too_large = None;
    for [tensor, pipeline] in model_parallel_sizes(model, machine) {
        let copies = machine.devices / (tensor * pipeline);
        let Ok(smallest) = Configuration::new(tensor, pipeline, copies, 1) else { continue };
        if smallest.devices() != machine.devices || smallest.microbatches(batch).is_err() {
            continue;
        }
        let bytes = memory(model, &smallest, batch, 1)?.total();
        if bytes > machine.device_memory {
            too_large = Some((smallest, bytes));
            continue;
        }
        let (configuration, tried) = best_microbatch(model, machine, batch, &smallest, pass_seconds)?;
        let plain = memory(model, &configuration, batch, 1)?;
        let sizes = reasons(&configuration, machine, too_large, &plain, &tried);
        let (chunks, interleaving) = interleaving(model, machine, batch, &configuration)?;
        let [tensor, pipeline, data, microbatch] = sizes;
        return Ok(Advice {
            configuration,
            chunks,
            memory: memory(model, &configuration, batch, chunks)?,
            reasons: [tensor, pipeline, data, microbatch, format!("chunks={chunks}: {interleaving}")],
        });
    }
    Err(refusal(model, machine, batch, too_large))
}

/// `[t, p]` in the order of the takeaways: growing `t` inside a node, then growing `p` with the largest `t`.
fn model_parallel_sizes(model: &Model, machine: &Machine) -> Vec<[usize; 2]> {
    let divides = |number: usize| move |size: &usize| number.is_multiple_of(*size);
    let node = machine.per_node.min(machine.devices);
    let tensors = || (1..=node).filter(divides(machine.per_node)).filter(divides(model.classic().heads));
    let largest = tensors().next_back().unwrap_or(1);
    let pipelines = (2..=model.layers()).filter(divides(model.layers()));
    tensors().map(|tensor| [tensor, 1]).chain(pipelines.map(|pipeline| [largest, pipeline])).collect()
}

/// The microbatch of the fastest batch among those that divide a copy's share and fit, and all of them.
fn best_microbatch(
    model: &Model,
    machine: &Machine,
    batch: usize,
    smallest: &Configuration,
    pass_seconds: impl Fn(&Configuration) -> f64,
) -> Result<(Configuration, Vec<usize>), SpecError> {
    let mut best = (f64::INFINITY, *smallest);
    let mut tried = Vec::new();
    let share = smallest.microbatches(batch)?;
    for microbatch in (1..=share).filter(|microbatch| share.is_multiple_of(*microbatch)) {
        let configuration = Configuration { microbatch, ..*smallest };
        if memory(model, &configuration, batch, 1)?.total() > machine.device_memory {
            break;
        }
        tried.push(microbatch);
        let seconds = configuration.batch_seconds(batch, pass_seconds(&configuration))?;
        if seconds < best.0 {
            best = (seconds, configuration);
        }
    }
    Ok((best.1, tried))
}

/// Chunks of layers on a device, and why.
fn interleaving(
    model: &Model,
    machine: &Machine,
    batch: usize,
    configuration: &Configuration,
) -> Result<(usize, String), SpecError> {
    let pipeline = configuration.pipeline;
    let microbatches = configuration.microbatches(batch)?;
    let layers = model.layers() / pipeline;
    let plain = |reason: String| Ok((1, reason));
    if pipeline == 1 {
        return plain("one stage has no bubble".to_owned());
    }
    if !microbatches.is_multiple_of(pipeline) {
        return plain(format!("{microbatches} microbatches are no multiple of {pipeline} stages (section 2.2.2)"));
    }
    let Some(chunks) = (2..=layers).find(|chunks| layers.is_multiple_of(*chunks)) else {
        return plain("a stage of one layer cannot be cut (section 2.2.2)".to_owned());
    };
    let bytes = memory(model, configuration, batch, chunks)?.total();
    if bytes > machine.device_memory {
        let available = gigabytes(machine.device_memory);
        return plain(format!("{chunks} of them keep more in flight, {} of {available}", gigabytes(bytes)));
    }
    let [without, with] =
        [configuration.bubble(batch)?, configuration.interleaved_bubble(batch, chunks)?].map(|bubble| 100.0 * bubble);
    let reason = format!(
        "interleaved, the bubble falls from {without:.1} % to {with:.1} % of the ideal time, and {chunks} times as much is \
         sent between stages (section 2.2.2)"
    );
    Ok((chunks, reason))
}

fn reasons(
    configuration: &Configuration,
    machine: &Machine,
    too_large: Option<(Configuration, f64)>,
    memory: &Memory,
    tried: &[usize],
) -> [String; 4] {
    let &Configuration { tensor, pipeline, data, microbatch } = configuration;
    let needed = gigabytes(memory.total());
    let available = gigabytes(machine.device_memory);
    let least = match too_large {
        Some((smaller, bytes)) => format!(
            "the least that fits, {needed} of {available}: tensor={} pipeline={} needs {} (takeaway 2)",
            smaller.tensor,
            smaller.pipeline,
            gigabytes(bytes)
        ),
        None => format!("a copy of the model fits, {needed} of {available} (takeaway 2)"),
    };
    let (for_tensor, for_pipeline) = match pipeline {
        1 => (least, "tensor parallelism inside a node suffices (takeaway 1)".to_owned()),
        _ => (format!("as far as a node of {} and the heads allow (takeaway 1)", machine.per_node), least),
    };
    let list: Vec<String> = tried.iter().map(usize::to_string).collect();
    [
        format!("tensor={tensor}: {for_tensor}"),
        format!("pipeline={pipeline}: {for_pipeline}"),
        format!("data={data}: all other devices hold copies (takeaway 2)"),
        format!("microbatch={microbatch}: the fastest batch of those that fit, {} (takeaway 3)", list.join(", ")),
    ]
}

fn refusal(model: &Model, machine: &Machine, batch: usize, too_large: Option<(Configuration, f64)>) -> SpecError {
    match too_large {
        Some((largest, bytes)) => SpecError::invalid(
            "device_memory",
            gigabytes(machine.device_memory),
            format!(
                "shared by {} devices, {} still takes {} each",
                largest.model_parallel(),
                model.name,
                gigabytes(bytes)
            ),
            "use more devices, or devices with more memory",
        ),
        None => SpecError::invalid(
            "devices",
            machine.devices,
            format!(
                "tensor sizes divide a node of {} and {} heads, pipeline sizes {} layers, and the copies of the model \
                 divide a batch of {batch}",
                machine.per_node,
                model.classic().heads,
                model.layers()
            ),
            "use a power of two of devices, or a batch that the devices divide",
        ),
    }
}

/// `85.9 GB`, decimal.
fn gigabytes(bytes: f64) -> String {
    format!("{:.1} GB", bytes / 1e9)
}
