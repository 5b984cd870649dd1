//! The device of a cluster file, from what was measured.

use quadrille_spec::{Device, Efficiency, ElementType, MeasuredRate, Origin, Origins, Peaks, RateUnit};

use super::cases::Case;
use super::{CalibrationSpec, Measured, Measurements};
use crate::MeasureError;
use crate::constants::without_latency;

/// What one rank computes while all ranks do.
///
/// `launch_seconds` is what an operation of the engine takes on tiny operands, and fractions are those of the kernels alone:
/// the native model's seconds of an operation are then the kernel's and the engine's, see
/// `quadrille_cost::native::product_flops`. A product's fraction is that of its three layouts one after the other, an
/// attention's that of forward and backward. Fractions are those of f32, but for products of bf16, and on a
/// device attention, which have their own. Where operands of a product lie in cache, the model may take its time from memory bandwidth instead.
///
/// On a device the host begins kernels while others run. What was measured of a kernel is then how often it is done in a row, which
/// holds its beginning: that is taken off, at most by half, since the model adds `launch_seconds` again. Attention of bf16 has
/// fractions of its own there, of the peak of bf16, and element-wise work is that of runs in bf16.
///
/// # Errors
/// Nothing of a kind was measured.
pub fn of(measured: &Measurements) -> Result<Device, MeasureError> {
    let setup = &measured.setup;
    let rate = |dtype| best(measured, dtype);
    let [half, single, double] = [rate(ElementType::Bf16)?, rate(ElementType::F32)?, rate(ElementType::F64)?];
    let (memory_bandwidth, memory_efficiency) = memory(measured)?;
    let products = |wanted| {
        move |case: &Case| match case {
            Case::Product { dtype, shape, .. } if *dtype == wanted => Some(*shape),
            _ => None,
        }
    };
    let attention = |wanted| {
        move |case: &Case| match case {
            Case::Attention { dtype, shape, .. } if *dtype == wanted => Some(*shape),
            _ => None,
        }
    };
    let has_half = measured.cases.iter().any(|measured| attention(ElementType::Bf16)(&measured.case).is_some());
    let mut device = Device {
        name: format!("measured by quadrille calibrate on {}", setup.place()),
        source: source(measured),
        memory: setup.memory,
        memory_bandwidth,
        memory_efficiency,
        // What is copied within the host's memory is read from and written to the same.
        host_bandwidth: host_copy(measured).or(Some(memory_bandwidth * memory_efficiency / 2.0)),
        host_memory: None,
        peak: Peaks::wide(half, single, double),
        vector_rate: vector_rate(measured)?,
        launch_seconds: measured.launch_seconds,
        products: table(measured, single, products(ElementType::F32))?,
        half_products: Some(table(measured, half, products(ElementType::Bf16))?),
        narrow_products: None,
        attention: table(measured, single, attention(ElementType::F32))?,
        half_attention: if has_half { Some(table(measured, half, attention(ElementType::Bf16))?) } else { None },
        origins: Origins::default(),
    };
    device.origins = Origins::all(device.numbers(), Origin::Measured);
    Ok(device)
}

/// How it was measured, in words.
fn source(measured: &Measurements) -> String {
    let setup = &measured.setup;
    let CalibrationSpec { threads, runs, .. } = setup.spec;
    let types = match &setup.device {
        None => "f32 and bf16, and f64 in its peak".to_owned(),
        Some(_) => format!(
            "f32 and bf16, f64 in its peak, element-wise work in {}; seconds without those in which kernels are begun",
            setup.sizes.values
        ),
    };
    let place = setup.place();
    format!("measured by quadrille calibrate on {place}: {threads} threads each, medians of {runs} runs; {types}")
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
    products.map(|product| rate(measured, product)).max_by(f64::total_cmp).ok_or_else(|| nothing("products"))
}

/// Seconds of a case's work alone: on a device without those in which its kernel is begun, which `launch_seconds` has.
fn seconds(all: &Measurements, measured: &Measured) -> f64 {
    match (&all.setup.device, measured.case) {
        (Some(_), Case::Product { .. } | Case::Attention { .. } | Case::Sweep { .. }) => {
            without_latency(measured.runs.seconds, all.launch_seconds)
        }
        _ => measured.runs.seconds,
    }
}

fn rate(all: &Measurements, measured: &Measured) -> f64 {
    measured.case.work().0 / seconds(all, measured)
}

/// The fraction of the peak for every shape: of all cases of one shape, one after the other.
fn table(
    measured: &Measurements,
    peak: f64,
    shape: impl Fn(&Case) -> Option<[usize; 3]>,
) -> Result<Efficiency, MeasureError> {
    let mut sums: Vec<([usize; 3], f64, f64)> = Vec::new();
    for one in &measured.cases {
        let Some(shape) = shape(&one.case) else { continue };
        let work = one.case.work().0;
        let taken = seconds(measured, one);
        match sums.iter_mut().find(|(known, ..)| *known == shape) {
            Some((_, flops, seconds)) => (*flops, *seconds) = (*flops + work, *seconds + taken),
            None => sums.push((shape, work, taken)),
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
    for one in &measured.cases {
        let (work, unit) = one.case.work();
        if unit == wanted && matches!(one.case, Case::Sweep { .. }) {
            sums = (sums.0 + work, sums.1 + seconds(measured, one), f64::max(sums.2, rate(measured, one)));
        }
    }
    sums
}

/// Bytes per second between the host's memory and a device's, one way; `None`: ranks have the host's.
fn host_copy(measured: &Measurements) -> Option<f64> {
    let copy = measured.cases.iter().find(|measured| matches!(measured.case, Case::HostCopy { .. }))?;
    Some(rate(measured, copy))
}
