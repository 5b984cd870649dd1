//! Megatron-LM's analysis of pipeline, tensor and data parallelism (Narayanan et al., "Efficient Large-Scale Language
//! Model Training on GPU Clusters Using Megatron-LM", SC 2021): parameters, FLOPs, bubbles, volumes, training time, and
//! its takeaways as a planner.
//!
//! As published: GPT's equal layers with perceptrons of width `4h` (of a model only layers, hidden, heads, vocabulary and
//! sequence length count), pipeline flushes, four all-reduces a layer and microbatch, bandwidths and latencies left out.
//!
//! Letters: `B` sequences in a batch, `b` in a microbatch, `s` tokens in a sequence, `h` hidden, `L` layers, `V`
//! vocabulary; `t`, `p`, `d` tensor, pipeline and data parallel sizes, `n = t p d` devices, `m = B/(b d)` microbatches of
//! a pipeline, `v` chunks of layers on a device.

use quadrille_spec::{Model, SpecError};

/// Parameters `P` by equation 2: `12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h))`. The final norm, `2 h`, is not in it.
pub fn parameters(model: &Model) -> f64 {
    let [layers, h, vocab, s] = [model.layers, model.hidden, model.vocab, model.seq_len].map(|size| size as f64);
    12.0 * layers * h * h * (1.0 + 13.0 / (12.0 * h) + (vocab + s) / (12.0 * layers * h))
}

/// Whether the backward pass computes the forward pass of every layer again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recomputation {
    /// Three passes' work: forward, gradients of inputs and of weights.
    None,
    /// Four passes' work, the forward pass twice: what equation 3 counts.
    Full,
}

/// FLOPs of one layer on `batch` sequences: the layer's part of equation 3, `96 B s h^2 (1 + s/(6 h))`; without
/// recomputation 72 in place of 96.
pub fn layer_flops(batch: usize, seq_len: usize, hidden: usize, recomputation: Recomputation) -> f64 {
    let [batch, s, h] = [batch, seq_len, hidden].map(|size| size as f64);
    let per_pass = 24.0 * batch * s * h * h * (1.0 + s / (6.0 * h));
    match recomputation {
        Recomputation::None => 3.0 * per_pass,
        Recomputation::Full => 4.0 * per_pass,
    }
}

/// FLOPs of an iteration over `batch` sequences: equation 3, `96 B s L h^2 (1 + s/(6 h) + V/(16 L h))`. Without
/// recomputation the layers count 72 instead of 96; the logits, `6 B s h V`, are never computed again.
pub fn flops(model: &Model, batch: usize, recomputation: Recomputation) -> f64 {
    let [sequences, s, h, vocab] = [batch, model.seq_len, model.hidden, model.vocab].map(|size| size as f64);
    let layers = model.layers as f64 * layer_flops(batch, model.seq_len, model.hidden, recomputation);
    layers + 6.0 * sequences * s * h * vocab
}

/// Seconds to train on `tokens` tokens, with recomputation, by equation 4: `8 T P/(n X)`. `flops_per_device` is `X`, the
/// FLOP/s that a device achieves. The approximation of equation 3 where `6 h >> s`, `16 L h >> V + s`, `12 L h >> V`.
pub fn training_seconds(parameters: f64, tokens: f64, devices: usize, flops_per_device: f64) -> f64 {
    8.0 * tokens * parameters / (devices as f64 * flops_per_device)
}

/// Seconds to train on `tokens` tokens at `flops_per_second` of all devices together, with recomputation, by equation 3.
pub fn training_seconds_by_flops(model: &Model, tokens: f64, flops_per_second: f64) -> f64 {
    tokens / model.seq_len as f64 * flops(model, 1, Recomputation::Full) / flops_per_second
}

/// Bytes of a checkpoint: 14 a parameter, a half-precision weight (2), its f32 master (4) and Adam's two moments (4 + 4).
/// Assumed: section 5.10 prints a size only, and it is near this one.
pub fn checkpoint_bytes(parameters: f64) -> f64 {
    14.0 * parameters
}

/// Bytes of activations that a stage of `layers` layers keeps for a microbatch with `checkpoints` of them, `c`, section
/// 3.5: `c A_input + (l/c) A_intermediate`, both in bytes a layer.
pub fn activation_bytes(layers: usize, checkpoints: f64, input: f64, intermediate: f64) -> f64 {
    checkpoints * input + layers as f64 / checkpoints * intermediate
}

/// The number of checkpoints that keeps least, section 3.5: `sqrt(l A_intermediate/A_input)`. Not a whole number; from
/// `l` on there is one a layer.
pub fn best_checkpoints(layers: usize, input: f64, intermediate: f64) -> f64 {
    (layers as f64 * intermediate / input).sqrt()
}

/// How devices share a model and its batches: `t`, `p`, `d` and `b` of section 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    tensor: usize,
    pipeline: usize,
    data: usize,
    microbatch: usize,
}

/// Most devices of a configuration, as of grids, and most sequences of a batch to plan for.
const MOST: usize = 1 << 24;

impl Configuration {
    /// `t` tensor, `p` pipeline and `d` data parallel ranks, microbatches of `b` sequences.
    ///
    /// # Errors
    /// A size of 0, or more than 2^24 devices.
    pub fn new(tensor: usize, pipeline: usize, data: usize, microbatch: usize) -> Result<Self, SpecError> {
        for (name, size) in [("tensor", tensor), ("pipeline", pipeline), ("data", data), ("microbatch", microbatch)] {
            check_positive(name, size)?;
        }
        let devices = tensor.checked_mul(pipeline).and_then(|size| size.checked_mul(data));
        if devices.is_none_or(|devices| devices > MOST) {
            let sizes = format!("{tensor}*{pipeline}*{data}");
            return Err(SpecError::invalid("devices", sizes, "there are at most 2^24", "use smaller sizes"));
        }
        Ok(Self { tensor, pipeline, data, microbatch })
    }

    /// `t`: devices that share each layer.
    pub fn tensor(&self) -> usize {
        self.tensor
    }

    /// `p`: devices in a row that share the layers.
    pub fn pipeline(&self) -> usize {
        self.pipeline
    }

    /// `d`: copies of the model.
    pub fn data(&self) -> usize {
        self.data
    }

    /// `b`: sequences in a microbatch.
    pub fn microbatch(&self) -> usize {
        self.microbatch
    }

    /// `M = t p`, the devices that hold a copy of the model.
    pub fn model_parallel(&self) -> usize {
        self.tensor * self.pipeline
    }

    /// `n = t p d`.
    pub fn devices(&self) -> usize {
        self.model_parallel() * self.data
    }

    /// `m = B/(b d)`, microbatches of a pipeline in a batch of `batch` sequences.
    ///
    /// # Errors
    /// A batch that `b d` does not divide, or without sequences.
    pub fn microbatches(&self, batch: usize) -> Result<usize, SpecError> {
        check_positive("batch", batch)?;
        let pass = self.microbatch.saturating_mul(self.data);
        SpecError::check_divides("microbatch*data", pass, "batch", batch)?;
        Ok(batch / pass)
    }

    /// Time in the pipeline bubble over the ideal time, GPipe and 1F1B: `(p-1)/m`, section 2.2.1. With `d = 1` this is
    /// `(n/t-1)/m` (section 3.2), with `t = 1` and `b' = B/b` it is `(n-d)/b'` (section 3.3.1).
    ///
    /// # Errors
    /// Those of [`Configuration::microbatches`].
    pub fn bubble(&self, batch: usize) -> Result<f64, SpecError> {
        Ok((self.pipeline - 1) as f64 / self.microbatches(batch)? as f64)
    }

    /// The same of the interleaved schedule with `chunks` chunks of layers on a device: `(p-1)/(v m)`, section 2.2.2.
    ///
    /// # Errors
    /// Those of [`Configuration::microbatches`]; no chunk; microbatches that are no multiple of the pipeline size.
    pub fn interleaved_bubble(&self, batch: usize, chunks: usize) -> Result<f64, SpecError> {
        check_positive("chunks", chunks)?;
        SpecError::check_divides("pipeline", self.pipeline, "microbatches", self.microbatches(batch)?)?;
        Ok(self.bubble(batch)? / chunks as f64)
    }

    /// Seconds of a batch without communication, section 3.4: `(B/(b d) + p - 1)(t_f(b) + t_b(b))`; `pass_seconds` is
    /// the last factor, a forward and a backward pass of a microbatch on a stage.
    ///
    /// # Errors
    /// Those of [`Configuration::microbatches`].
    pub fn batch_seconds(&self, batch: usize, pass_seconds: f64) -> Result<f64, SpecError> {
        Ok((self.microbatches(batch)? + self.pipeline - 1) as f64 * pass_seconds)
    }

    /// Elements that a device sends to the next one of its pipeline for a microbatch, in either direction: `b s h`
    /// (section 3.2), `v` times as many with `chunks` chunks on a device (section 2.2.2).
    pub fn boundary_elements(&self, model: &Model, chunks: usize) -> f64 {
        chunks as f64 * self.boundary(model)
    }

    /// The same with the scatter/gather optimisation of section 4.1: the share of one of `t` tensor parallel ranks.
    pub fn scattered_boundary_elements(&self, model: &Model, chunks: usize) -> f64 {
        self.boundary_elements(model, chunks) / self.tensor as f64
    }

    /// Elements that a device sends for tensor parallelism and a microbatch, section 3.2: `8 b s h (t-1)/t` in each of
    /// its stage's layers, `L/p`.
    pub fn tensor_elements(&self, model: &Model) -> f64 {
        let (layers, t) = (model.layers as f64 / self.pipeline as f64, self.tensor as f64);
        layers * 8.0 * self.boundary(model) * (t - 1.0) / t
    }

    /// `b s h`, the values between two layers.
    fn boundary(&self, model: &Model) -> f64 {
        self.microbatch as f64 * model.seq_len as f64 * model.hidden as f64
    }
}

fn check_positive(name: &str, size: usize) -> Result<(), SpecError> {
    if size > 0 {
        return Ok(());
    }
    Err(SpecError::invalid(name, size, "it is at least 1", "give a positive number"))
}

/// Bytes of a parameter's states in mixed precision: weight and gradient in f32 (4 + 4) and in half precision (2 + 2),
/// Adam's two moments (4 + 4). The paper prints no number; this one is S. Singh's dissertation's, chapter 3.
const STATE_BYTES: f64 = 20.0;

/// Bytes of an activation, half precision.
const ACTIVATION_BYTES: f64 = 2.0;

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
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.states + self.inputs + self.intermediate
    }
}

/// Estimates the fullest device's memory by the terms of section 3.5 and the states of mixed precision.
///
/// `A_intermediate` is a symbol in the paper; assumed here: what a layer's backward pass reads, `2 b s h (4 + 12/t)` bytes
/// of inputs and outputs of norms and products, and the attention probabilities, `2 b a s^2/t`. Masks of dropout, logits
/// and buffers of communication are not counted.
///
/// # Errors
/// Those of [`Configuration::microbatches`].
pub fn memory(model: &Model, configuration: &Configuration, batch: usize) -> Result<Memory, SpecError> {
    let in_flight = configuration.pipeline.min(configuration.microbatches(batch)?) as f64;
    let (s, heads, t) = (model.seq_len as f64, model.heads as f64, configuration.tensor as f64);
    let (boundary, probabilities) = (configuration.boundary(model), configuration.microbatch as f64 * heads * s * s);
    let layers = model.layers.div_ceil(configuration.pipeline) as f64;
    Ok(Memory {
        states: STATE_BYTES * parameters(model) / configuration.model_parallel() as f64,
        inputs: ACTIVATION_BYTES * in_flight * layers * boundary,
        intermediate: ACTIVATION_BYTES * (boundary * (4.0 + 12.0 / t) + probabilities / t),
    })
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
    /// The fullest device's memory.
    pub memory: Memory,
    /// Why these sizes: tensor, pipeline, data, microbatch.
    pub reasons: [String; 4],
}

/// Chooses sizes by the takeaways of sections 3.2 to 3.4 for batches of `batch` sequences.
///
/// The model-parallel size is the least that fits with microbatches of one sequence (takeaway 2), first by tensor
/// parallelism inside a node, then by pipeline stages of equal numbers of layers (takeaway 1); all other devices hold
/// copies. The microbatch is the one of least [`Configuration::batch_seconds`] that fits (takeaway 3), where
/// `pass_seconds` is `t_f(b) + t_b(b)`, measured or modelled: in proportion to `b`, one sequence is always best.
///
/// # Errors
/// No devices, nodes or sequences, or more than 2^24; memory that is no positive number; no configuration whose sizes
/// divide heads, layers, devices and batch; none that fits.
pub fn advise(
    model: &Model,
    machine: &Machine,
    batch: usize,
    pass_seconds: impl Fn(usize) -> f64,
) -> Result<Advice, SpecError> {
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
        let bytes = memory(model, &smallest, batch)?.total();
        if bytes > machine.device_memory {
            too_large = Some((smallest, bytes));
            continue;
        }
        let (configuration, tried) = best_microbatch(model, machine, batch, &smallest, pass_seconds)?;
        let memory = memory(model, &configuration, batch)?;
        let reasons = reasons(&configuration, machine, too_large, &memory, &tried);
        return Ok(Advice { configuration, memory, reasons });
    }
    Err(refusal(model, machine, batch, too_large))
}

/// `[t, p]` in the order of the takeaways: growing `t` inside a node, then growing `p` with the largest `t`.
fn model_parallel_sizes(model: &Model, machine: &Machine) -> Vec<[usize; 2]> {
    let divides = |number: usize| move |size: &usize| number.is_multiple_of(*size);
    let node = machine.per_node.min(machine.devices);
    let tensors = || (1..=node).filter(divides(machine.per_node)).filter(divides(model.heads));
    let largest = tensors().next_back().unwrap_or(1);
    let pipelines = (2..=model.layers).filter(divides(model.layers));
    tensors().map(|tensor| [tensor, 1]).chain(pipelines.map(|pipeline| [largest, pipeline])).collect()
}

/// The microbatch of the fastest batch among those that divide a copy's share and fit, and all of them.
fn best_microbatch(
    model: &Model,
    machine: &Machine,
    batch: usize,
    smallest: &Configuration,
    pass_seconds: impl Fn(usize) -> f64,
) -> Result<(Configuration, Vec<usize>), SpecError> {
    let (mut best, mut tried) = ((f64::INFINITY, *smallest), Vec::new());
    let share = smallest.microbatches(batch)?;
    for microbatch in (1..=share).filter(|microbatch| share.is_multiple_of(*microbatch)) {
        let configuration = Configuration { microbatch, ..*smallest };
        if memory(model, &configuration, batch)?.total() > machine.device_memory {
            break;
        }
        tried.push(microbatch);
        let seconds = configuration.batch_seconds(batch, pass_seconds(microbatch))?;
        if seconds < best.0 {
            best = (seconds, configuration);
        }
    }
    Ok((best.1, tried))
}

fn reasons(
    configuration: &Configuration,
    machine: &Machine,
    too_large: Option<(Configuration, f64)>,
    memory: &Memory,
    tried: &[usize],
) -> [String; 4] {
    let &Configuration { tensor, pipeline, data, microbatch } = configuration;
    let (needed, available) = (gigabytes(memory.total()), gigabytes(machine.device_memory));
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
                machine.per_node, model.heads, model.layers
            ),
            "use a power of two of devices, or a batch that the devices divide",
        ),
    }
}

/// `85.9 GB`, decimal.
fn gigabytes(bytes: f64) -> String {
    format!("{:.1} GB", bytes / 1e9)
}
