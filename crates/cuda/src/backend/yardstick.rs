//! How fast a device's library multiplies.

use quadrille_engine::{Backend, EngineError, Yardstick};
use quadrille_tensor::{Buffer, ProductShape, Transpose};

use super::devices;
use super::lanes::Lanes;
use crate::array::Number;
use crate::driver::{Fault, Product};

/// A product of square matrices, on the first rank's device, of elements as a backend stores them.
pub(super) fn product_of_device<B: Backend<Stored: Number>>(side: usize) -> Result<Yardstick, EngineError> {
    let lanes = Lanes::new(devices::of_rank(0)?)?;
    // Zeros would be multiplied faster.
    let numbers = Buffer::<B::Stored>::without_pattern(side * side);
    let matrix = || lanes.take(side * side * size_of::<B::Stored>());
    let memory = [matrix()?, matrix()?, matrix()?];
    let [a, b, c] = memory.each_ref().map(|memory| memory.array(B::Stored::ELEMENT));
    [a, b].into_iter().try_for_each(|operand| lanes.up(&numbers, operand))?;
    let shape = ProductShape { stored: Transpose::Nn, m: side, n: side, k: side };
    let product = Product { shape, a, b, c, accumulate: false, bias: None, algorithm: None };
    let run = || -> Result<(), Fault> {
        // SAFETY: the matrices are there until the stream is done, and apart.
        unsafe { lanes.driver().product(lanes.compute(), &product) }?;
        lanes.driver().synchronize(lanes.compute())
    };
    Ok(Yardstick::of([side; 3], run)?)
}
