//! The device of a cluster file, from what was measured.

use quadrille_spec::{Device, Efficiency, ElementType, MeasuredRate, Origin, Origins, Peaks, RateUnit};

use super::cases::Case;
use super::{CalibrationSpec, Measured, Measurements};
use crate::MeasureError;

/// What one rank computes while all ranks do.
///
/// `launch_seconds` is what an operation of the engine takes on tiny operands, and fractions are those of the kernels alone:
/// the native model's seconds of an operation are then the kernel's and the engine's, see
/// `quadrille_cost::native::product_flops`. A product's fraction is that of its three layouts one after the other, an
/// attention's that of forward and backward. Fractions are those of f32, but for products of bf16, which
/// have their own. Where operands of a product lie in cache, the model may take its time from memory bandwidth instead.
///
/// # Errors
/// Nothing of a kind was measured.
pub fn of(measured: &Measurements) -> Result<Device, MeasureError> {
    let setup = &measured.setup;
    let rate = |dtype| best(measured, dtype);
    let [half, single, double] = [rate(ElementType::Bf16)?, rate(ElementType::F32)?, rate(ElementType::F64)?];
    let (memory_bandwidth, memory_efficiency) = memory(measured)?;
    let CalibrationSpec { threads, runs, .. } = setup.spec;
    let name = format!("measured by quadrille calibrate on {}", setup.spec.place());
    let mut device = Device {
        source: format!("{name}: {threads} threads each, medians of {runs} runs; f32 and bf16, and f64 in its peak"),
        name,
        memory: setup.memory,
        memory_bandwidth,
        memory_efficiency,
        // What is copied is read from and written to the same memory.
        host_bandwidth: Some(memory_bandwidth * memory_efficiency / 2.0),
        host_memory: None,
        peak: Peaks::wide(half, single, double),
        vector_rate: vector_rate(measured)?,
        launch_seconds: measured.launch_seconds,
        products: table(measured, single, |case| match case {
            Case::Product { dtype: ElementType::F32, shape, .. } => Some(*shape),
            _ => None,
        })?,
        half_products: Some(table(measured, half, |case| match case {
            Case::Product { dtype: ElementType::Bf16, shape, .. } => Some(*shape),
            _ => None,
        })?),
        narrow_products: None,
        attention: table(measured, single, |case| match case {
            Case::Attention { shape, .. } => Some(*shape),
            _ => None,
        })?,
        origins: Origins::default(),
    };
    device.origins = Origins::all(device.numbers(), Origin::Measured);
    Ok(device)
}

fn nothing(what: &'static str) -> MeasureError {
    MeasureError::Unmeasured { what }
}

/// The best rate of a product of this type.
fn best(measured: &Measurements, wanted: ElementType) -> Result<f64, MeasureError> {
    let products = measured.cases.iter().filter(|measured| match measured.case {
        Case::Product { dtype, .. } => dtype == wanted,
        _ => false,
    });
    products.map(rate).max_by(f64::total_cmp).ok_or_else(|| nothing("products"))
}

fn rate(measured: &Measured) -> f64 {
    measured.case.work().0 / measured.runs.seconds
}

/// The fraction of the peak for every shape: of all cases of one shape, one after the other.
fn table(
    measured: &Measurements,
    peak: f64,
    shape: fn(&Case) -> Option<[usize; 3]>,
) -> Result<Efficiency, MeasureError> {
    let mut sums: Vec<([usize; 3], f64, f64)> = Vec::new();
    for Measured { case, runs } in &measured.cases {
        let Some(shape) = shape(case) else { continue };
        let work = case.work().0;
        match sums.iter_mut().find(|(known, ..)| *known == shape) {
            Some((_, flops, seconds)) => (*flops, *seconds) = (*flops + work, *seconds + runs.seconds),
            None => sums.push((shape, work, runs.seconds)),
        }
    }
    if sums.is_empty() {
        return Err(nothing("shapes"));
    }
    // Nothing is above the peak of products but by noise: attention is made of smaller ones.
    let entry = |([m, n, k], flops, seconds): ([usize; 3], f64, f64)| MeasuredRate {
        m,
        n,
        k,
        fraction: (flops / (peak * seconds)).min(1.0),
    };
    Ok(Efficiency::Table { entries: sums.into_iter().map(entry).collect() })
}

/// The fastest rate out of cache, and which part of it sweeps reach together.
fn memory(measured: &Measurements) -> Result<(f64, f64), MeasureError> {
    let (bytes, seconds, best) = sweeps(measured, RateUnit::Bytes);
    if best == 0.0 { Err(nothing("sweeps out of cache")) } else { Ok((best, (bytes / seconds / best).min(1.0))) }
}

/// The rate in cache, of all sweeps one after the other.
fn vector_rate(measured: &Measurements) -> Result<f64, MeasureError> {
    let (flops, seconds, best) = sweeps(measured, RateUnit::Flops);
    if best == 0.0 { Err(nothing("sweeps in cache")) } else { Ok(flops / seconds) }
}

/// Work and seconds of element-wise operations whose work has this unit, and the best rate.
fn sweeps(measured: &Measurements, wanted: RateUnit) -> (f64, f64, f64) {
    let mut sums = (0.0, 0.0, 0.0);
    for measured in &measured.cases {
        let (work, unit) = measured.case.work();
        if unit == wanted && matches!(measured.case, Case::Sweep { .. }) {
            sums = (sums.0 + work, sums.1 + measured.runs.seconds, f64::max(sums.2, rate(measured)));
        }
    }
    sums
}
