//! How fast a device's library multiplies.

use std::sync::Arc;

use half::bf16;
use quadrille_engine::Yardstick;
use quadrille_tensor::{ProductShape, Transpose};

use super::lanes::Lanes;
use crate::array::Element;
use crate::driver::{Driver, Fault, Product};

/// A product of square matrices of numbers that are drawn, for those of zeros are faster.
pub(super) fn product_of_device(driver: Arc<dyn Driver>, element: Element, side: usize) -> Result<Yardstick, Fault> {
    let lanes = Lanes::new(driver)?;
    let matrix = || lanes.take(side * side * element.bytes());
    let (a, b, c) = (matrix()?, matrix()?, matrix()?);
    for (matrix, seed) in [(&a, 1), (&b, 2)] {
        match element {
            Element::F64 => lanes.up(&Yardstick::numbers::<f64>(side * side, seed), matrix.array(element))?,
            Element::F32 => lanes.up(&Yardstick::numbers::<f32>(side * side, seed), matrix.array(element))?,
            _ => lanes.up(&Yardstick::numbers::<bf16>(side * side, seed), matrix.array(element))?,
        }
    }
    let shape = ProductShape { stored: Transpose::Nn, m: side, n: side, k: side };
    let [a, b, c] = [a.array(element), b.array(element), c.array(element)];
    let product = Product { shape, a, b, c, accumulate: false };
    Yardstick::of([side; 3], || {
        // SAFETY: the matrices are there until the stream is done, and apart.
        unsafe { lanes.driver().product(lanes.compute(), &product) }?;
        lanes.driver().synchronize(lanes.compute())
    })
}
