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

use quadrille_spec::{Activation, Classic, Model, Norm, Positions, SpecError};

pub use advice::{Advice, Machine, Memory, advise, memory, modelled_pass_seconds};

/// Refuses models whose parameters and FLOPs equations 2 and 3 do not count.
///
/// # Errors
/// Patches, SwiGLU, grouped keys, a perceptron that is not `4h` wide, positions without a table, RMS norms, linear layers
/// without biases, a head of its own.
pub fn check_described(model: &Model) -> Result<(), SpecError> {
    model.check_classic("equations 2 and 3 of Narayanan et al.")?;
    let Classic { hidden, heads, kv_heads, ffn, patch_values, tied_head, biases, norm, positions, activation, .. } =
        &model.classic();
    let rules = [
        (
            patch_values.is_none(),
            "patch_values",
            patch_values.unwrap_or(0).to_string(),
            "count a vocabulary",
            "no patches",
        ),
        (
            *activation == Activation::Gelu,
            "activation",
            activation.to_string(),
            "count perceptrons of two products",
            "gelu",
        ),
        (
            kv_heads == heads,
            "kv_heads",
            kv_heads.to_string(),
            "count a key and a value for every head",
            "as many as heads",
        ),
        (*ffn == 4 * hidden, "ffn", ffn.to_string(), "count perceptrons of four times hidden", "4 x hidden"),
        (*positions == Positions::Learned, "positions", positions.to_string(), "count a table of positions", "learned"),
        (*norm == Norm::Layer, "norm", norm.to_string(), "count layer norms", "layer"),
        (*biases, "biases", biases.to_string(), "count a bias in every linear layer", "true"),
        (*tied_head, "tied_head", tied_head.to_string(), "count the embedding table once", "true"),
    ];
    match rules.into_iter().find(|(described, ..)| !described) {
        None => Ok(()),
        Some((_, field, value, counts, usual)) => Err(SpecError::invalid(
            field,
            value,
            format!("equations 2 and 3 of Narayanan et al. {counts}"),
            format!("use a model of GPT's family ({usual}), or another cost model"),
        )),
    }
}

/// Parameters `P` by equation 2: `12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h))`. The final norm, `2 h`, is not in it.
pub fn parameters(model: &Model) -> f64 {
    let [layers, h, vocab, s] = [model.layers(), model.hidden, model.vocab, model.seq_len].map(|size| size as f64);
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
    let layers = model.layers() as f64 * layer_flops(batch, model.seq_len, model.hidden, recomputation);
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
        let (layers, t) = (model.layers() as f64 / self.pipeline as f64, self.tensor as f64);
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
