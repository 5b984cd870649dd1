//! What follows from prices.

use quadrille_cost::native::NarrowFormat;
use quadrille_spec::ElementType;

use super::question::Question;
use super::ranking::Ranked;
use super::setting::Setting;
use crate::goodput::Goodput;

impl Setting<'_> {
    /// FLOP/s of a device in the products of the framework's type, what MFU and HFU are taken of, and the type; `None` where
    /// the cluster's device is not described.
    pub fn peak(&self) -> Option<(f64, &'static str)> {
        let name = match self.framework.numbers.products {
            Some(NarrowFormat::Nvfp4) => "4-bit",
            Some(_) => "8-bit",
            None => match self.framework.multiplies() {
                ElementType::Bf16 => "16-bit",
                ElementType::F16 => "f16",
                ElementType::F32 => "f32",
                ElementType::F64 => "f64",
            },
        };
        Some((self.framework.product_peak(self.cluster.device.as_ref()?), name))
    }
}

/// What follows from a price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Derived {
    /// Tokens in a second of training.
    pub tokens_per_second: f64,
    /// FLOPs that the model needs for a step, by the question's convention.
    pub model_flops: f64,
    /// The same in a second on each device, in 10^12.
    pub tflops_per_device: f64,
    /// The same over what the devices could do in a step.
    pub mfu: f64,
    /// What MFU is, of all FLOPs that are executed.
    pub hfu: f64,
    /// The part of published runs of the framework's kind that would fit, by what they took beside their tensors; `None` where
    /// the device's memory is not known.
    pub fitting_runs: Option<f64>,
    /// What failures leave of the time, where it is said how often devices fail.
    pub goodput: Option<Goodput>,
    /// Days of the whole training, where its tokens are known; with what failures cost, as all that follows.
    pub days: Option<f64>,
    /// Hours of all its devices.
    pub device_hours: Option<f64>,
    /// What they cost, where a price is known.
    pub cost: Option<f64>,
}

impl Question {
    /// What follows from the price of a layout that was found.
    pub fn derived(&self, setting: &Setting, ranked: &Ranked) -> Derived {
        let Ranked { candidate, price } = ranked;
        let devices = candidate.devices();
        let (peak, _) = setting.peak().unwrap_or((f64::INFINITY, ""));
        let tokens = (self.global_batch * self.seq_len) as f64;
        let needed = price.counted_by(self.flops_convention, &self.model, candidate, [self.global_batch, self.seq_len]);
        let days = self.days(ranked);
        let device_hours = days.map(|days| 24.0 * days * devices as f64);
        Derived {
            tokens_per_second: tokens / price.seconds,
            model_flops: needed.model_flops,
            tflops_per_device: needed.tflops_per_device(devices),
            mfu: needed.mfu(devices, peak),
            hfu: price.hfu(devices, peak),
            fitting_runs: self
                .cluster
                .device_memory
                .map(|device| setting.framework.fitting_runs(&price.memory, device)),
            goodput: self.goodput(ranked),
            days,
            device_hours,
            cost: device_hours.zip(self.price_per_hour).map(|(hours, price)| hours * price),
        }
    }
}
