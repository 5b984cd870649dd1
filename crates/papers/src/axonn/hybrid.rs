//! AxoNN's hybrid of pipeline and data parallelism (Singh's dissertation, chapter 3): bytes of states with and without
//! its buckets, the interval of kept activations, what the data-parallel phase sends.
//!
//! Letters: `φ` parameters of a GPU, `bsize` elements of a bucket, `N` layers, `G_inter` stages, `G_data` replicas, `ac`
//! layers between two kept activations.

/// Bytes of a parameter's weight and gradient in 16 bits.
const HALVES: f64 = 2.0 + 2.0;
/// Bytes of its master weight in f32.
const MASTER: f64 = 4.0;
/// Bytes of its gradient in f32.
const WIDE_GRADIENT: f64 = 4.0;
/// Bytes of Adam's two moments in f32.
const MOMENTS: f64 = 8.0;

/// Bytes of all states of `parameters` parameters in mixed precision with Adam, section 3.3.2: `20 φ`.
pub fn mixed_precision_bytes(parameters: f64) -> f64 {
    (HALVES + MASTER + WIDE_GRADIENT + MOMENTS) * parameters
}

/// Bytes that stay on the GPU where f32 states are fetched in buckets of `bucket` elements, section 3.3.2:
/// `4 φ + 16 bsize`. Of a bucket there are the master weight, both moments and the gradient in f32.
pub fn bucketed_bytes(parameters: f64, bucket: f64) -> f64 {
    HALVES * parameters + (MASTER + WIDE_GRADIENT + MOMENTS) * bucket
}

/// Activations that the fullest GPU keeps, in those of one layer, equation 3.1: `G_inter N/(G_inter ac) + 1 + ac`. It
/// counts what a layer computes within as much as its output.
pub fn kept_activations(layers: usize, stages: usize, interval: f64) -> f64 {
    let layers = layers as f64;
    let stages = stages as f64;
    stages * (layers / (stages * interval)) + 1.0 + interval
}

/// The interval that section 3.3.1 sets: of the factors of `N/G_inter` the one nearest to `sqrt(N)`, where equation 3.1
/// is least. Of two equally near ones the smaller.
pub fn kept_interval(layers: usize, stages: usize) -> usize {
    let own = layers / stages.max(1);
    let best = (layers as f64).sqrt();
    let factors = (1..=own).filter(|factor| own.is_multiple_of(*factor));
    let distance = |factor: &usize| (*factor as f64 - best).abs();
    factors.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(1)
}

/// Bytes that a GPU sends in the data-parallel phase, section 3.2.2: an all-reduce of gradients in 16 bits, as a ring,
/// `2 (G_data - 1)/G_data 2 φ`. That NCCL runs a ring is assumed.
pub fn data_parallel_bytes(parameters: f64, replicas: usize) -> f64 {
    let replicas = replicas as f64;
    2.0 * (replicas - 1.0) / replicas * 2.0 * parameters
}
