//! Sizes of the three kinds of parallelism, with the bubbles and volumes that follow from them.

use quadrille_spec::{Model, SpecError};

/// How devices share a model and its batches: `t`, `p`, `d` and `b` of section 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    pub(super) tensor: usize,
    pub(super) pipeline: usize,
    pub(super) data: usize,
    pub(super) microbatch: usize,
}

/// Most devices of a configuration, as of grids, and most sequences of a batch to plan for.
pub(super) const MOST: usize = 1 << 24;

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
        let layers = model.layers() as f64 / self.pipeline as f64;
        let t = self.tensor as f64;
        layers * 8.0 * self.boundary(model) * (t - 1.0) / t
    }

    /// `b s h`, the values between two layers.
    pub(super) fn boundary(&self, model: &Model) -> f64 {
        self.microbatch as f64 * model.seq_len as f64 * model.hidden as f64
    }
}

pub(super) fn check_positive(name: &str, size: usize) -> Result<(), SpecError> {
    if size > 0 {
        return Ok(());
    }
    Err(SpecError::invalid(name, size, "it is at least 1", "give a positive number"))
}
