//! Layouts and their prices in words and units.

use quadrille_cost::native::{Candidate, Price};
use quadrille_plan::native::{Ranked, Setting};
use quadrille_spec::{Axis, KeepWeights, Linear, Overlap, Recompute, Schedule, Zero};

use super::case::Case;

/// `x=8,data=16,pipe=8`: axes above 1.
pub fn sizes(sizes: [usize; 6]) -> String {
    let named = Axis::ALL.into_iter().filter(|axis| sizes[*axis as usize] > 1);
    let named: Vec<_> = named.map(|axis| format!("{axis}={}", sizes[axis as usize])).collect();
    if named.is_empty() { "-".to_owned() } else { named.join(",") }
}

/// The schedule with its chunks; nothing without a pipeline.
pub fn schedule(candidate: &Candidate) -> String {
    match (candidate.size(Axis::Pipe), candidate.schedule, candidate.chunks) {
        (1, ..) => "-".to_owned(),
        (_, Schedule::Interleaved, chunks) => format!("interleaved x{chunks}"),
        (_, schedule, _) => schedule.to_string(),
    }
}

/// What is computed again.
pub fn recompute(candidate: &Candidate) -> String {
    let kept = if candidate.keep_communicated { " cac" } else { "" };
    match candidate.recompute {
        Recompute::None => "-".to_owned(),
        recompute => format!("{recompute}{kept}"),
    }
}

/// Choices that differ from the usual, beside those that have a column of their own.
pub fn others(candidate: &Candidate) -> String {
    let mut told = Vec::new();
    let mut tell = |differs: bool, text: String| told.extend(differs.then_some(text));
    tell(candidate.zero != Zero::Off, format!("zero {}", candidate.zero));
    let mesh = candidate.size(Axis::X) * candidate.size(Axis::Y);
    tell(mesh > 1 && candidate.linear == Linear::Summa, format!("summa/{}", candidate.summa_panels));
    let replicated = candidate.activations == quadrille_spec::Activations::Replicated;
    tell(mesh > 1 && replicated, "replicated".to_owned());
    tell(candidate.keep_weights == KeepWeights::Step, "weights kept".to_owned());
    tell(candidate.overlap_chunks > 1, format!("{} overlap chunks", candidate.overlap_chunks));
    tell(candidate.overlap != Overlap::ALL, format!("overlap {}", candidate.overlap));
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}

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

/// `1.234 s`, `12.3 ms`.
pub fn seconds(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1.0 || v == 0.0 => (value, "s"),
        v if v >= 1e-3 => (value * 1e3, "ms"),
        _ => (value * 1e6, "us"),
    };
    let digits = match scaled.abs() {
        v if v < 10.0 => 3,
        v if v < 100.0 => 2,
        _ => 1,
    };
    format!("{scaled:.digits$} {unit}")
}

/// `12.3%` of a step.
pub fn share(part: f64, price: &Price) -> String {
    format!("{:.1}%", 100.0 * part / price.seconds)
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
