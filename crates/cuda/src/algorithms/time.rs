//! The times of a product's candidates on a device.

use std::time::Instant;

use quadrille_engine::{ProductAlgorithm, transpose};
use quadrille_spec::ElementType;
use quadrille_step as step;
use quadrille_tensor::{Buffer, ProductShape, Stored};

use super::{Measured, Wanted, fastest};
use crate::array::{Element, Number};
use crate::driver::{Candidate, Driver, Fault, Place, Product, ProductKind, Stream};
use crate::memory::DeviceMemory;

/// Trials of a candidate; the least time counts.
const TRIALS: usize = 3;
/// Products of a trial, one after another, so that starting them takes no part of the time of large ones.
const AT_ONCE: usize = 4;
/// Numbers that are drawn for operands; larger ones repeat them.
const DRAWN: usize = 1 << 20;

/// What a product's algorithm is for; `None`: devices do not multiply such elements.
pub fn kind_of(product: &step::Product, operands: ElementType, result: ElementType) -> Option<ProductKind> {
    let element = |of| match of {
        ElementType::F64 => Some(Element::F64),
        ElementType::F32 => Some(Element::F32),
        ElementType::Bf16 => Some(Element::Bf16),
        ElementType::F16 => None,
    };
    let step::Product { storage, m, n, k } = *product;
    let shape = ProductShape { stored: transpose(storage), m, n, k };
    Some(ProductKind { shape, operands: element(operands)?, result: element(result)?, bias: false })
}

/// Times what the library offers for a product, whose operands are of type `S`, and chooses. Memory comes from `take`; nobody
/// else is to use the device meanwhile.
pub fn time<S: Number + Stored>(
    wanted: &Wanted,
    driver: &dyn Driver,
    stream: Stream,
    take: impl Fn(usize) -> Result<DeviceMemory, Fault>,
) -> Result<ProductAlgorithm, Fault> {
    let Wanted { product, operands, result } = *wanted;
    let kind = kind_of(&product, operands, result).expect("a layout's types are the device's");
    let ProductShape { m, n, k, .. } = kind.shape;
    let [a, b] = [m * k, k * n].map(|len| take(len * size_of::<S>()));
    let a = a?;
    let b = b?;
    let c = take(m * n * kind.result.bytes())?;
    fill::<S>(driver, stream, [&a, &b])?;
    let [a, b, c] = [(&a, kind.operands), (&b, kind.operands), (&c, kind.result)].map(|(memory, of)| memory.array(of));
    // Of nothing there is nothing to choose.
    let candidates = if m * n * k == 0 { Vec::new() } else { driver.device().candidates(kind)? };
    let mut measured = Vec::with_capacity(candidates.len());
    for Candidate { algorithm, workspace } in candidates.iter().copied() {
        let algorithm = Some(algorithm);
        let accumulate = false;
        let bias = None;
        let product = Product { shape: kind.shape, a, b, c, accumulate, bias, algorithm };
        // What needs too much cannot be run at all.
        let fits = workspace <= driver.device().workspace();
        let trials = if fits { trials(driver, stream, &product)? } else { Vec::new() };
        measured.push(Measured { workspace, trials });
    }
    let chosen = fastest(&measured, driver.device().workspace());
    let algorithm = chosen.map(|chosen| candidates[chosen].algorithm.0);
    let seconds = measured.iter().map(|measured| measured.seconds(driver.device().workspace())).collect();
    Ok(ProductAlgorithm { product, operands, result, chosen, algorithm, seconds })
}

/// Seconds of a product in each trial; none if the library refuses it.
fn trials(driver: &dyn Driver, stream: Stream, product: &Product) -> Result<Vec<f64>, Fault> {
    // SAFETY: the operands are there until the stream is done, as it is whenever this returns, and apart.
    let issue = || unsafe { driver.product(stream, product) };
    // The first one of all loads the kernel.
    let refused = issue().is_err();
    driver.synchronize(stream)?;
    let trials = if refused { 0 } else { TRIALS };
    let mut seconds = Vec::with_capacity(trials);
    for _ in 0..trials {
        let start = Instant::now();
        let issued = (0..AT_ONCE).try_for_each(|_| issue());
        // Also of some that were issued before one failed.
        driver.synchronize(stream)?;
        issued?;
        seconds.push(start.elapsed().as_secs_f64() / AT_ONCE as f64);
    }
    Ok(seconds)
}

/// Fills memory with numbers without a pattern: zeros would be multiplied faster.
fn fill<S: Number + Stored>(driver: &dyn Driver, stream: Stream, all: [&DeviceMemory; 2]) -> Result<(), Fault> {
    let most = all.map(DeviceMemory::bytes).into_iter().fold(0, usize::max) / size_of::<S>();
    let numbers = Buffer::<S>::without_pattern(most.min(DRAWN));
    let drawn = size_of_val::<[S]>(&numbers);
    let parts = |memory: &DeviceMemory| (0..memory.bytes()).step_by(drawn.max(1));
    let issued = all.into_iter().flat_map(|memory| parts(memory).map(move |first| (memory, first))).try_for_each(
        |(memory, first)| {
            let from = Place::Host(numbers.as_ptr().cast());
            let to = Place::Device(memory.at().offset(first));
            // SAFETY: both have so many bytes, and the numbers are there until the stream is done, below.
            unsafe { driver.copy(stream, from, to, drawn.min(memory.bytes() - first)) }
        },
    );
    driver.synchronize(stream)?;
    issued
}
