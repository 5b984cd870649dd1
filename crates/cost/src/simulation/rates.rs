//! Devices of one rate for all operations, as they are said.

use quadrille_spec::Cluster;

use super::DeviceRates;

/// GFLOP/s of what a device of the cluster `local` is taken for: a rank that is a few threads of a CPU.
pub const LOCAL_GFLOPS: f64 = 50.0;
/// Its share of the memory's bandwidth, in GB/s.
pub const LOCAL_MEMORY_GB_S: f64 = 10.0;
/// Microseconds before an operation or a message of it begins.
pub const LOCAL_LATENCY_US: f64 = 1.0;

/// Rates that are said of devices, in place of what their cluster says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SaidRates {
    /// GFLOP/s in products and attention.
    pub device_gflops: Option<f64>,
    /// GB/s of a device's memory.
    pub memory_gb_s: Option<f64>,
    /// Microseconds before an operation or a message begins.
    pub latency_us: Option<f64>,
}

/// Rates that give no machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RateError {
    /// A rate that is not above 0.
    #[error("`simulation.{key}` {rate}: a rate is positive; give one, e.g. `simulation.{key}` 100")]
    Rate {
        /// Which one, as in [`SaidRates`].
        key: &'static str,
        /// What was said.
        rate: f64,
    },
    /// A time that is below 0.
    #[error("`simulation.latency_us` {latency_us}: a time is at least 0; give one, e.g. 5")]
    Latency {
        /// What was said, in microseconds.
        latency_us: f64,
    },
    /// A rate that nobody said, of devices that are not this machine's.
    #[error(
        "a simulation of devices of one rate on {cluster} needs `simulation.{key}`: give it, or leave the other rates out"
    )]
    Missing {
        /// Which one, as in [`SaidRates`].
        key: &'static str,
        /// The cluster's name.
        cluster: String,
    },
}

impl SaidRates {
    /// The rates of every device, with those of [`LOCAL_GFLOPS`] and so on where the cluster is this machine; `None` where
    /// nothing is said and the cluster describes its devices.
    ///
    /// # Errors
    /// What is no rate or no time; a rate that is not known.
    pub fn on(&self, cluster: &Cluster) -> Result<Option<DeviceRates>, RateError> {
        let Self { device_gflops, memory_gb_s, latency_us } = *self;
        if [device_gflops, memory_gb_s, latency_us].iter().all(Option::is_none) && cluster.device.is_some() {
            return Ok(None);
        }
        let rate = |key: &'static str, said: Option<f64>, local: f64| match said {
            Some(rate) if rate.is_finite() && rate > 0.0 => Ok(rate * 1e9),
            Some(rate) => Err(RateError::Rate { key, rate }),
            None if cluster.name == "local" => Ok(local * 1e9),
            None => Err(RateError::Missing { key, cluster: cluster.name.clone() }),
        };
        let latency_us = latency_us.unwrap_or(LOCAL_LATENCY_US);
        if !(latency_us.is_finite() && latency_us >= 0.0) {
            return Err(RateError::Latency { latency_us });
        }
        let flops = rate("device_gflops", device_gflops, LOCAL_GFLOPS)?;
        Ok(Some(DeviceRates {
            gemm_flop_per_s: flops,
            attention_flop_per_s: flops,
            memory_bytes_per_s: rate("memory_gb_s", memory_gb_s, LOCAL_MEMORY_GB_S)?,
            operation_latency_s: latency_us * 1e-6,
        }))
    }
}
