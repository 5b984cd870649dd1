//! The advised configuration, and what follows from it.

use quadrille_spec::{Cluster, Device, Model, SpecError};

use super::advice::{Advice, Machine, advise, modelled_pass_seconds};
use super::configuration::Configuration;
use super::formulas::{Recomputation, check_described, layer_flops};

/// Bytes of a value that is sent, half precision.
const VALUE_BYTES: f64 = 2.0;

/// What is planned for, and what is advised.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is trained.
    pub model: Model,
    /// On what.
    pub machine: Machine,
    /// Sequences in a step.
    pub batch: usize,
    /// The configuration, and why.
    pub advice: Advice,
    /// What follows from it.
    pub quantities: Quantities,
}

/// What follows from a configuration, in SI units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantities {
    /// Microbatches of a pipeline in a step.
    pub microbatches: usize,
    /// A forward and a backward pass of a microbatch on a stage, modelled.
    pub pass_seconds: f64,
    /// Idle time over the ideal time.
    pub bubble: f64,
    /// A step, without communication.
    pub seconds: f64,
    /// FLOP/s that a device then reaches in layers, recomputation counted.
    pub flop_per_s: f64,
    /// Bytes that a device sends for each microbatch for tensor parallelism.
    pub tensor_bytes: f64,
    /// The same to the next stage, without and with scatter/gather.
    pub stage_bytes: [f64; 2],
}

impl Plan {
    /// What the takeaways advise for a model on a machine of such devices.
    ///
    /// # Errors
    /// A model that the paper does not describe; none of its configurations fits.
    pub fn new(model: Model, device: &Device, machine: Machine, batch: usize) -> Result<Self, SpecError> {
        check_described(&model)?;
        let pass = |configuration: &Configuration| modelled_pass_seconds(&model, configuration, device);
        let advice = advise(&model, &machine, batch, pass)?;
        let quantities = Quantities::new(&model, &advice, batch, pass(&advice.configuration))?;
        Ok(Self { model, machine, batch, advice, quantities })
    }
}

/// A cluster of unknown devices, for which nothing is advised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`run.cluster` {cluster}: the takeaways need the speed and the memory of its devices, which it does not tell; use selene or \
     another that names its device, or write device = \"a100-80\" into a file"
)]
pub struct UnknownDevice {
    /// The cluster's name.
    pub cluster: String,
}

/// A cluster's device and its bytes of memory.
///
/// # Errors
/// The cluster does not tell one of them.
pub fn known_device(cluster: &Cluster) -> Result<(&Device, f64), UnknownDevice> {
    match (&cluster.device, cluster.device_memory) {
        (Some(device), Some(bytes)) => Ok((device, bytes as f64)),
        _ => Err(UnknownDevice { cluster: cluster.name.clone() }),
    }
}

impl Quantities {
    fn new(model: &Model, advice: &Advice, batch: usize, pass_seconds: f64) -> Result<Self, SpecError> {
        let Advice { configuration, chunks, .. } = advice;
        let microbatches = configuration.microbatches(batch)?;
        let bubble = match chunks {
            1 => configuration.bubble(batch)?,
            chunks => configuration.interleaved_bubble(batch, *chunks)?,
        };
        let seconds = microbatches as f64 * pass_seconds * (1.0 + bubble);
        let flops = model.layers() as f64 * layer_flops(batch, model.seq_len, model.hidden, Recomputation::Full);
        let last = configuration.pipeline() == 1;
        let stage = |elements: f64| if last { 0.0 } else { VALUE_BYTES * elements };
        Ok(Self {
            microbatches,
            pass_seconds,
            bubble,
            seconds,
            flop_per_s: flops / (configuration.devices() as f64 * seconds),
            tensor_bytes: VALUE_BYTES * configuration.tensor_elements(model),
            stage_bytes: [
                stage(configuration.boundary_elements(model, *chunks)),
                stage(configuration.scattered_boundary_elements(model, *chunks)),
            ],
        })
    }
}
