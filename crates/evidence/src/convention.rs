//! From what a source prints to seconds of a step: one named formula for each way of counting.

use quadrille_spec::six_per_parameter;

use crate::row::{Metric, Row};
use crate::unmapped::Unmapped;

/// A way to print the speed of a step. Letters: `B` sequences of a step, `s` tokens of a sequence, `L` layers, `h`
/// hidden, `V` vocabulary, `n` devices, `v` the printed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convention {
    /// `v` seconds.
    Seconds,
    /// Tokens per second and device: `B s / (n v)`.
    Tokens,
    /// Tokens per second and device in the notes, `8357 tok/s/GPU`, beside a count of FLOPs.
    NotedTokens,
    /// 10^12 FLOP/s a device, FLOPs with full recomputation: `96 B s L h^2 (1 + s/(6h) + V/(16 L h)) / (n v 10^12)`
    /// (Narayanan et al. 2021, equation 3).
    MegatronHardware,
    /// 10^12 FLOP/s a device, 8 FLOPs a parameter and token: `8 P B s / (n v 10^12)`, with `P = L h (12 h + 13) + V h`
    /// and `s h` positions (BigScience's first logs).
    EightPerParameter,
    /// Percent of `peak`, FLOPs of the model alone: `72 B s L h^2 (1 + s/(6h) + V/(12 L h)) / (n peak v/100)`
    /// (Korthikanti et al. 2022).
    MegatronModel {
        /// FLOP/s of a device, in 10^12.
        peak: u32,
    },
    /// Percent of `peak`: `(6 N + 12 L h s) B s / (n peak v/100)`, with `N = L (12 h^2 + 2 h) + (V + s) h + h`: MPT has
    /// no biases (llm-foundry's benchmarks).
    SixPerParameter {
        /// FLOP/s of a device, in 10^12.
        peak: u32,
    },
}

impl Convention {
    /// How a row prints its speed.
    ///
    /// # Errors
    /// A convention that is not known here.
    pub fn of(row: &Row) -> Result<Self, Unmapped> {
        let text = row.flop_convention.as_str();
        match row.metric {
            Metric::IterationSeconds => Ok(Self::Seconds),
            Metric::TokensPerSecond => Ok(Self::Tokens),
            Metric::Teraflops if text.starts_with("HW FLOPs incl. full recompute: F=96") => Ok(Self::MegatronHardware),
            Metric::Teraflops if noted_tokens(row).is_some() => Ok(Self::NotedTokens),
            Metric::Teraflops if text.starts_with("8*P*T/(n*t)") => Ok(Self::EightPerParameter),
            Metric::Utilization if text.starts_with("72*B*L*s*h^2") => Ok(Self::MegatronModel { peak: 312 }),
            Metric::Utilization if text.starts_with("(6N+12*l*h*s)/token") => {
                let peak = match () {
                    () if row.gpu.starts_with("A100") => 312,
                    () if row.dtype.contains("fp8") => 1979,
                    () => 989,
                };
                Ok(Self::SixPerParameter { peak })
            }
            _ => Err(Unmapped::Convention),
        }
    }

    /// The formula's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Tokens => "tokens",
            Self::NotedTokens => "noted-tokens",
            Self::MegatronHardware => "megatron-hardware",
            Self::EightPerParameter => "eight-per-parameter",
            Self::MegatronModel { .. } => "megatron-model",
            Self::SixPerParameter { .. } => "six-per-parameter",
        }
    }

    /// Seconds of the step for which the row prints `value`.
    ///
    /// # Errors
    /// A size that the formula needs and the row does not have.
    pub fn seconds(self, row: &Row, value: f64) -> Result<f64, Unmapped> {
        let size = |column, size: Option<usize>| size.map(|size| size as f64).ok_or(Unmapped::Missing(column));
        let sizes = &row.sizes;
        let devices = || size("n_gpus", sizes.n_gpus);
        let tokens = || Ok(size("global_batch", sizes.global_batch)? * size("seq_len", sizes.seq_len)?);
        // [L, h, s, V]
        let model = || {
            let [layers, hidden] = [size("layers", sizes.layers)?, size("hidden", sizes.hidden)?];
            Ok([layers, hidden, size("seq_len", sizes.seq_len)?, size("vocab", sizes.vocab)?])
        };
        Ok(match self {
            Self::Seconds => value,
            Self::Tokens => tokens()? / (devices()? * value),
            Self::NotedTokens => tokens()? / (devices()? * noted_tokens(row).ok_or(Unmapped::Convention)?),
            Self::MegatronHardware => {
                let [l, h, s, v] = model()?;
                let flops = 96.0 * tokens()? * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h));
                flops / (devices()? * value * 1e12)
            }
            Self::EightPerParameter => {
                let [l, h, s, v] = model()?;
                let parameters = l * h * (12.0 * h + 13.0) + (v + s) * h;
                8.0 * parameters * tokens()? / (devices()? * value * 1e12)
            }
            Self::MegatronModel { peak } => {
                let [l, h, s, v] = model()?;
                let flops = 72.0 * tokens()? * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h));
                flops / (devices()? * f64::from(peak) * 1e12 * value / 100.0)
            }
            Self::SixPerParameter { peak } => {
                let [l, h, s, v] = model()?;
                let parameters = l * (12.0 * h * h + 2.0 * h) + (v + s) * h + h;
                let flops = six_per_parameter(parameters, l * h * s) * tokens()?;
                flops / (devices()? * f64::from(peak) * 1e12 * value / 100.0)
            }
        })
    }
}

/// Tokens per second and device that the notes tell.
fn noted_tokens(row: &Row) -> Option<f64> {
    let before = row.notes.split_once(" tok/s/GPU")?.0;
    before.rsplit([' ', ';', ',']).next()?.parse().ok().filter(|tokens| *tokens > 0.0)
}
