//! How often experts were chosen, on the processor.

use std::cell::RefCell;

use quadrille_tensor::{Element, RouterShape, count_choices};

/// Choices of each expert of all blocks, as far as there are some: of this rank's tokens, from the sums over ranks on of all.
#[derive(Default)]
pub(super) struct Loads(RefCell<Vec<f64>>);

impl Loads {
    /// Adds the choices in `routes`, of a block whose first expert has this number.
    pub fn add<T: Element>(&self, first: usize, shape: RouterShape, routes: &[T]) {
        let mut own = vec![T::ZERO; shape.experts];
        count_choices(shape, routes, |_| 0, &mut own, false);
        let mut loads = self.0.borrow_mut();
        let needed = loads.len().max(first + shape.experts);
        loads.resize(needed, 0.0);
        loads[first..].iter_mut().zip(own).for_each(|(load, own)| *load += own.to_f64());
    }

    /// Those of so many experts.
    pub fn take(&self, experts: usize) -> Vec<f64> {
        let mut loads = self.0.take();
        loads.resize(experts, 0.0);
        loads
    }

    /// Others in their place.
    pub fn put(&self, loads: Vec<f64>) {
        self.0.replace(loads);
    }

    /// As whole numbers.
    pub fn counts(&self) -> Vec<u64> {
        self.0.borrow().iter().map(|load| *load as u64).collect()
    }
}
