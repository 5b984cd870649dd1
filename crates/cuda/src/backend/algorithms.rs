//! The algorithms by which a rank's products run.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use quadrille_engine::{Algorithms, EngineError, ProductAlgorithm, Values};
use quadrille_spec::ElementType;
use quadrille_step as step;
use quadrille_tensor::ProductShape;

use super::Cuda;
use crate::algorithms::{Record, Wanted, kind_of, time};
use crate::array::{Array, Element, Number};
use crate::cache;
use crate::driver::{ALIGNED, Algorithm, Driver, ProductKind};

/// What was chosen on the devices of this process: all its ranks choose the same. Whoever measures holds it, so that no other
/// rank measures meanwhile.
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// The algorithms of a rank's products; those of others are the library's own choice.
#[derive(Default)]
pub struct Chosen(RefCell<HashMap<ProductKind, Algorithm>>);

impl Chosen {
    /// The algorithm of a product. One whose operands begin elsewhere than those that were measured has none.
    pub fn of(&self, shape: ProductShape, [a, b, c]: [Array; 3], bias: bool) -> Option<Algorithm> {
        let kind = ProductKind { shape, operands: a.element, result: c.element, bias };
        let is_aligned = [a, b, c].iter().all(|array| array.at.0.is_multiple_of(ALIGNED as u64));
        if is_aligned { self.0.borrow().get(&kind).copied() } else { None }
    }
}

/// What a recorded algorithm is for, and the algorithm, where the library has it for such products and there is the workspace.
fn usable(driver: &dyn Driver, of: &ProductAlgorithm) -> Option<(ProductKind, Option<Algorithm>)> {
    let kind = kind_of(&of.product, of.operands, of.result)?;
    let Some(algorithm) = of.algorithm.map(Algorithm) else { return Some((kind, None)) };
    let workspace = driver.device().workspace_of(algorithm, kind).ok()?;
    (workspace <= driver.device().workspace()).then_some((kind, Some(algorithm)))
}

impl<S: Values + Number> Cuda<S>
where
    S::Real: Number,
{
    /// See [`LayerKernels::choose_algorithms`](quadrille_engine::LayerKernels::choose_algorithms).
    pub(super) fn choose(&self, products: &[(step::Product, ElementType)]) -> Result<Algorithms, EngineError> {
        let operands = match S::ELEMENT {
            Element::F64 => ElementType::F64,
            Element::F32 => ElementType::F32,
            _ => ElementType::Bf16,
        };
        let wanted: Vec<Wanted> =
            products.iter().map(|(product, result)| Wanted { product: *product, operands, result: *result }).collect();
        self.settled()?;
        let driver = self.lanes.at_once()?;
        let device = self.lanes.driver().device().library()?;
        let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let at = records.iter().position(|record| record.device() == device).unwrap_or_else(|| {
            records
                .push(Record::open(cache::folder("products").as_deref(), &device, |of| usable(driver, of).is_some()));
            records.len() - 1
        });
        let take = |bytes| self.lanes.take(bytes);
        let chosen = records[at].choose(&wanted, |of| time::<S>(of, driver, self.lanes.compute(), take))?;
        self.adopt(&chosen)?;
        Ok(chosen)
    }

    /// Uses what was chosen.
    pub(super) fn adopt(&self, chosen: &Algorithms) -> Result<(), EngineError> {
        let driver = self.lanes.driver().as_ref();
        let here = driver.device().library()?;
        let other = |of: String| EngineError::OtherAlgorithms { of, here: here.clone() };
        if chosen.device != here {
            return Err(other(chosen.device.clone()));
        }
        let of_products: Option<Vec<_>> = chosen.products.iter().map(|of| usable(driver, of)).collect();
        let unknown = || other(format!("{}, by algorithms that are unknown there", chosen.device));
        let known =
            of_products.ok_or_else(unknown)?.into_iter().filter_map(|(kind, algorithm)| Some((kind, algorithm?)));
        // With a bias an algorithm is the same, where the library has it so; else it is the library's first.
        let with_bias = |(kind, algorithm)| {
            let biased = ProductKind { bias: true, ..kind };
            let workspace = driver.device().workspace_of(algorithm, biased).ok();
            let fits = workspace.is_some_and(|workspace| workspace <= driver.device().workspace());
            [Some((kind, algorithm)), fits.then_some((biased, algorithm))].into_iter().flatten()
        };
        *self.algorithms.0.borrow_mut() = known.flat_map(with_bias).collect();
        Ok(())
    }
}
