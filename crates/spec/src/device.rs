//! A device: how fast it computes, what it remembers, and how efficiency depends on the shape of the work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ElementType;
use crate::Origins;
use crate::SpecError;
use crate::origins::numbers_of;
use crate::toml_text::{self, check_name};

const MAX_MEMORY: u64 = 1 << 50;

/// One accelerator as a cost model sees it. Files: [`Device::from_toml`]; every preset names where its numbers are from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What the device is called in reports.
    pub name: String,
    /// Where the numbers come from; for fitted ones, on which measurements they were fitted.
    pub source: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Memory bandwidth in bytes per second.
    pub memory_bandwidth: f64,
    /// Fraction of `memory_bandwidth` that streaming kernels reach, in (0, 1].
    pub memory_efficiency: f64,
    /// Bytes per second between the device and the memory of its host, in one direction; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_bandwidth: Option<f64>,
    /// The device's share of its host's memory, in bytes; `None`: not known, and not what binds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<u64>,
    /// Peak rates of dense matrix products, in FLOP/s.
    pub peak: Peaks,
    /// Peak rate of the general units in f32, in FLOP/s: element-wise work and reductions.
    pub vector_rate: f64,
    /// Seconds that every operation takes beside its work.
    pub launch_seconds: f64,
    /// Fraction of the peak that a matrix product reaches, by its shape.
    pub products: Efficiency,
    /// The same for 16-bit operands; `None`: it does not differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_products: Option<Efficiency>,
    /// The same for operands of 8 and of 4 bits; `None`: it does not differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrow_products: Option<Efficiency>,
    /// Fraction of the peak that flash-style attention reaches, by its shape: `m` the tokens of a sequence, `n` the width of a
    /// head, `k` of a curve the rows of queries of all heads and sequences on the rank, of an entry the heads whose rows are `m`
    /// tokens. See [`Efficiency::of_attention`].
    pub attention: Efficiency,
    /// The same of attention whose operands have 16 bits, as a fraction of `peak.half`; `None`: its kernel reaches the same fraction,
    /// or, of this program, computes in f32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_attention: Option<Efficiency>,
    /// Where each of these numbers is from.
    #[serde(default, skip_serializing_if = "Origins::is_empty")]
    pub origins: Origins,
}

/// Peak rates of dense matrix products by type of the operands, in FLOP/s. Which of them a program reaches is its choice: see
/// `quadrille_cost::native::Framework::peak`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peaks {
    /// bf16, sums in f32; `None`: the device has no such products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<f64>,
    /// f16, sums in f32; `None`: as of bf16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f16: Option<f64>,
    /// f32 whose operands are not rounded.
    pub single: f64,
    /// f32 whose operands are rounded to TF32, which no program does that is priced here; `None`: the device has no such products,
    /// or nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32: Option<f64>,
    /// f64.
    pub double: f64,
    /// 8-bit types (E4M3, E5M2), sums in f32; `None`: the device has no such products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<f64>,
    /// 4-bit types (E2M1) whose blocks have scales; `None`: the device has no such products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp4: Option<f64>,
}

impl Peaks {
    /// Of a device without products of fewer than 16 bits, and with equal rates of both types of 16 bits.
    pub fn wide(half: f64, single: f64, double: f64) -> Self {
        Self { half: Some(half), f16: None, single, tf32: None, double, fp8: None, fp4: None }
    }

    /// Of products whose operands have this type; `None`: the device has none.
    pub fn of(&self, dtype: ElementType) -> Option<f64> {
        match dtype {
            ElementType::Bf16 => self.half,
            ElementType::F16 => self.f16.or(self.half),
            ElementType::F32 => Some(self.single),
            ElementType::F64 => Some(self.double),
        }
    }
}

/// The fraction of a peak that a piece of work reaches, as a function of its shape `m x n x k`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum Efficiency {
    /// The same for every shape.
    Constant {
        /// In (0, 1].
        fraction: f64,
    },
    /// `ceiling / (1 + half_m / m + half_n / n + half_k / k)`: rises with every dimension.
    Curve {
        /// For endlessly large shapes; in (0, 1].
        ceiling: f64,
        /// Length of `m` that alone would halve it; at least 0.
        half_m: f64,
        /// Length of `n` that alone would halve it; at least 0.
        half_n: f64,
        /// Length of `k` that alone would halve it; at least 0.
        half_k: f64,
    },
    /// Measured rates: the entry nearest in the logarithms of the shape counts.
    Table {
        /// At least one entry.
        entries: Vec<MeasuredRate>,
    },
}

/// A measured fraction of the peak.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRate {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Of the peak, in (0, 1].
    pub fraction: f64,
}

impl Efficiency {
    /// The fraction of the peak that a shape of positive sizes reaches.
    pub fn at(&self, shape: [f64; 3]) -> f64 {
        self.nearest(shape, |entry| [entry.m, entry.n, entry.k])
    }

    /// The fraction of the peak that attention reaches whose queries see the keys of sequences of so many `tokens`, in heads of so
    /// many columns, with so many `rows` of queries of all heads and sequences: these are what a kernel divides among the
    /// processors of a device. A rank that holds a part of each sequence has rows of that part alone, however many its heads are.
    /// Entries of a table were measured on whole sequences: `k` heads have `m` rows each.
    pub fn of_attention(&self, [tokens, width, rows]: [f64; 3]) -> f64 {
        self.nearest([tokens, width, rows], |entry| [entry.m, entry.n, entry.m * entry.k])
    }

    /// The fraction of a shape; of a table, that of the entry whose `sizes` are nearest.
    fn nearest(&self, shape: [f64; 3], sizes: impl Fn(&MeasuredRate) -> [usize; 3]) -> f64 {
        match self {
            Self::Constant { fraction } => *fraction,
            Self::Curve { ceiling, half_m, half_n, half_k } => {
                let [m, n, k] = shape;
                ceiling / (1.0 + half_m / m + half_n / n + half_k / k)
            }
            Self::Table { entries } => {
                let distance = |entry: &MeasuredRate| -> f64 {
                    let pairs = sizes(entry).into_iter().zip(shape);
                    pairs.map(|(known, wanted)| (known as f64 / wanted).ln().powi(2)).sum()
                };
                let nearest = entries.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
                nearest.map_or(1.0, |entry| entry.fraction)
            }
        }
    }

    /// The largest fraction that any shape reaches.
    pub fn largest(&self) -> f64 {
        match self {
            Self::Constant { fraction } => *fraction,
            Self::Curve { ceiling, .. } => *ceiling,
            Self::Table { entries } => entries.iter().map(|entry| entry.fraction).fold(0.0, f64::max),
        }
    }

    /// The same shapes with every fraction `factor` times as large.
    pub fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        match &mut scaled {
            Self::Constant { fraction } => *fraction *= factor,
            Self::Curve { ceiling, .. } => *ceiling *= factor,
            Self::Table { entries } => entries.iter_mut().for_each(|entry| entry.fraction *= factor),
        }
        scaled
    }

    fn check(&self, field: &str) -> Result<(), SpecError> {
        match self {
            Self::Constant { fraction } => check_fraction(&format!("{field}.fraction"), *fraction),
            Self::Curve { ceiling, half_m, half_n, half_k } => {
                check_fraction(&format!("{field}.ceiling"), *ceiling)?;
                for (name, half) in [("half_m", half_m), ("half_n", half_n), ("half_k", half_k)] {
                    if !(0.0..=1e9).contains(half) {
                        let rule = "a length lies in 0..=1e9";
                        return Err(SpecError::invalid(format!("{field}.{name}"), half, rule, "use e.g. 128, or 0"));
                    }
                }
                Ok(())
            }
            Self::Table { entries } if entries.is_empty() => {
                let rule = "a table has at least one entry";
                Err(SpecError::invalid(format!("{field}.entries"), "[]", rule, "use kind = \"constant\""))
            }
            Self::Table { entries } => entries.iter().enumerate().try_for_each(|(index, entry)| {
                let field = format!("{field}.entries[{index}]");
                if [entry.m, entry.n, entry.k].contains(&0) {
                    let rule = "m, n and k are at least 1";
                    return Err(SpecError::invalid(field, 0, rule, "give positive numbers"));
                }
                check_fraction(&format!("{field}.fraction"), entry.fraction)
            }),
        }
    }
}

impl Device {
    /// Reads and validates a device file: the fields of [`Device`], bytes, seconds, FLOP/s.
    ///
    /// # Errors
    /// Text that is no TOML, missing or unknown fields, values outside their rule.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let device: Self = toml_text::read("a device", text)?;
        device.check_described()?;
        Ok(device)
    }

    /// Holds every number against its rule, and the origins against the numbers that there are.
    pub(crate) fn check_described(&self) -> Result<(), SpecError> {
        self.check()?;
        self.origins.check("origins", &self.numbers())
    }

    /// The names of all its numbers, as its file has them: `peak.half`.
    pub fn numbers(&self) -> Vec<String> {
        numbers_of(self)
    }

    /// Holds every number against its rule.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        check_name(&self.name)?;
        if !(1..=MAX_MEMORY).contains(&self.memory) {
            let rule = format!("a device has 1..={MAX_MEMORY} bytes");
            return Err(SpecError::invalid("memory", self.memory, rule, "give bytes, e.g. 85899345920"));
        }
        if let Some(memory) = self.host_memory.filter(|memory| !(1..=MAX_MEMORY).contains(memory)) {
            let rule = format!("a device's share of its host's memory has 1..={MAX_MEMORY} bytes");
            return Err(SpecError::invalid("host_memory", memory, rule, "give bytes, e.g. 137438953472"));
        }
        self.host_bandwidth.map_or(Ok(()), |rate| check_rate("host_bandwidth", rate))?;
        let rates = [
            ("memory_bandwidth", self.memory_bandwidth),
            ("peak.single", self.peak.single),
            ("peak.double", self.peak.double),
            ("vector_rate", self.vector_rate),
        ];
        for (field, rate) in rates {
            check_rate(field, rate)?;
        }
        let Peaks { half, f16, tf32, fp8, fp4, .. } = self.peak;
        let of_some =
            [("peak.half", half), ("peak.f16", f16), ("peak.tf32", tf32), ("peak.fp8", fp8), ("peak.fp4", fp4)];
        for (field, rate) in of_some {
            rate.map_or(Ok(()), |rate| check_rate(field, rate))?;
        }
        check_seconds("launch_seconds", self.launch_seconds)?;
        check_fraction("memory_efficiency", self.memory_efficiency)?;
        self.products.check("products")?;
        self.half_products.as_ref().map_or(Ok(()), |products| products.check("half_products"))?;
        self.narrow_products.as_ref().map_or(Ok(()), |products| products.check("narrow_products"))?;
        self.attention.check("attention")?;
        self.half_attention.as_ref().map_or(Ok(()), |attention| attention.check("half_attention"))
    }
}

/// A rate in bytes or FLOP per second.
pub(crate) fn check_rate(field: &str, rate: f64) -> Result<(), SpecError> {
    if (1.0..=1e18).contains(&rate) {
        return Ok(());
    }
    Err(SpecError::invalid(
        field,
        rate,
        "a rate lies in 1..=1e18 bytes per second or FLOP/s",
        "give bytes or FLOP per second, e.g. 25e9",
    ))
}

pub(crate) fn check_seconds(field: &str, seconds: f64) -> Result<(), SpecError> {
    if (0.0..=1.0).contains(&seconds) {
        return Ok(());
    }
    Err(SpecError::invalid(field, seconds, "a latency lies in 0..=1 seconds", "give seconds, e.g. 5e-6"))
}

pub(crate) fn check_fraction(field: &str, fraction: f64) -> Result<(), SpecError> {
    if fraction > 0.0 && fraction <= 1.0 {
        return Ok(());
    }
    Err(SpecError::invalid(field, fraction, "a fraction lies in (0, 1]", "use e.g. 0.7"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rank computes of a sequence that several ranks share is as wide as what it would compute of fewer whole ones.
    #[test]
    fn attention_follows_rows_of_queries() {
        let curve = Efficiency::Curve { ceiling: 0.6, half_m: 1000.0, half_n: 0.0, half_k: 16384.0 };
        let of = |rows: f64| curve.of_attention([8192.0, 128.0, rows]);
        assert_eq!(of(16384.0), 0.6 / (1.0 + 1000.0 / 8192.0 + 1.0));
        assert!(of(32.0 * 8192.0) > of(32.0 * 1024.0));
        let rate = |k, fraction| MeasuredRate { m: 512, n: 64, k, fraction };
        let table = Efficiency::Table { entries: vec![rate(1, 0.2), rate(8, 0.5)] };
        // Eight heads of whole sequences, and of a quarter of each.
        assert_eq!([8.0 * 512.0, 8.0 * 128.0].map(|rows| table.of_attention([512.0, 64.0, rows])), [0.5, 0.2]);
    }

    #[test]
    fn efficiency_follows_the_shape() {
        let curve = Efficiency::Curve { ceiling: 0.8, half_m: 100.0, half_n: 0.0, half_k: 0.0 };
        assert_eq!(curve.at([100.0, 1.0, 1.0]), 0.4);
        assert!(curve.at([1e6, 1.0, 1.0]) > 0.79);
        let rate = |m, fraction| MeasuredRate { m, n: 64, k: 64, fraction };
        let table = Efficiency::Table { entries: vec![rate(64, 0.3), rate(1024, 0.6)] };
        assert_eq!((table.at([100.0, 64.0, 64.0]), table.at([700.0, 64.0, 64.0])), (0.3, 0.6));
        for efficiency in [curve, table, Efficiency::Constant { fraction: 0.5 }] {
            let largest = efficiency.largest();
            let half = efficiency.scaled(0.5);
            assert_eq!(half.largest(), 0.5 * largest);
            assert_eq!(half.at([100.0, 64.0, 64.0]), 0.5 * efficiency.at([100.0, 64.0, 64.0]));
        }
    }
}
