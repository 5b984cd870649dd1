//! How fast a device's library multiplies.

use std::sync::Arc;

use half::bf16;
use quadrille_engine::Yardstick;
use quadrille_tensor::{Element as _, ProductShape, Stored, Transpose};

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
            Element::F64 => lanes.up(&drawn::<f64>(side * side, seed), matrix.array(element))?,
            Element::F32 => lanes.up(&drawn::<f32>(side * side, seed), matrix.array(element))?,
            _ => lanes.up(&drawn::<bf16>(side * side, seed), matrix.array(element))?,
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

/// Numbers between -1/2 and 1/2.
fn drawn<S: Stored>(len: usize, seed: u64) -> Vec<S> {
    let number = |at: usize| {
        let bits = (at as u64).wrapping_add(seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        S::rounded(S::Real::from_f64(bits as f64 / (1u64 << 24) as f64 - 0.5))
    };
    (0..len).map(number).collect()
}
