//! What follows from prices.

use quadrille_cost::native::Price;
use quadrille_plan::native::{Ranked, Setting};

use super::case::Case;

/// FLOP/s of a device in the products of the framework's type, what MFU and HFU are taken of.
pub fn peak(setting: &Setting) -> Option<(f64, &'static str)> {
    let peak = setting.cluster.device.as_ref()?.peak;
    Some(match setting.framework.activation_bytes {
        ..=2 => (peak.half, "16-bit"),
        3..=4 => (peak.single, "f32"),
        _ => (peak.double, "f64"),
    })
}

/// What follows from a price.
#[derive(Debug, Clone, Copy)]
pub struct Derived {
    pub tokens_per_second: f64,
    pub mfu: f64,
    pub hfu: f64,
    /// Of the whole training, where its tokens are known.
    pub days: Option<f64>,
    pub device_hours: Option<f64>,
    pub cost: Option<f64>,
}

impl Derived {
    pub fn new(case: &Case, setting: &Setting, ranked: &Ranked) -> Self {
        let Ranked { candidate, price } = ranked;
        let devices = candidate.devices();
        let (peak, _) = peak(setting).unwrap_or((f64::INFINITY, ""));
        let tokens = (case.global_batch * case.seq_len) as f64;
        let seconds = case.tokens.map(|wanted| wanted / tokens * price.seconds);
        let device_hours = seconds.map(|seconds| seconds / 3600.0 * devices as f64);
        Self {
            tokens_per_second: tokens / price.seconds,
            mfu: price.mfu(devices, peak),
            hfu: price.hfu(devices, peak),
            days: seconds.map(|seconds| seconds / 86_400.0),
            device_hours,
            cost: device_hours.zip(case.price_per_hour).map(|(hours, price)| hours * price),
        }
    }
}

/// Bytes with a name, by class.
pub fn memory(price: &Price) -> [(&'static str, u64); 6] {
    let memory = &price.memory;
    [
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations", memory.activations),
        ("buffers", memory.buffers),
        ("framework", memory.framework),
    ]
}
