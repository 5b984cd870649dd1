//! What methods of the backend have in common: numbers between host and device, products, and tables that kernels read.

use quadrille_engine::{EngineError, Positions, Values};
use quadrille_tensor::{ProductShape, Slots, SpreadShape};

use super::Cuda;
use super::convert::positions;
use crate::array::{Array, Number};
use crate::driver::Product;
use crate::ops::Places;

type Done = Result<(), EngineError>;

impl<S: Values + Number> Cuda<S>
where
    S::Real: Number,
{
    /// As [`Lanes::up`](super::Lanes).
    pub(super) fn up<T: Number>(&self, from: &[T], to: Array) -> Done {
        self.lanes.up(from, to)?;
        self.uploads.settled();
        Ok(())
    }

    /// As [`Lanes::down`](super::Lanes).
    pub(super) fn down<T: Number>(&self, from: Array, to: &mut [T]) -> Done {
        self.lanes.down(from, to)?;
        self.uploads.settled();
        Ok(())
    }

    /// Elements as the host sees them.
    pub(super) fn seen(&self, array: Array) -> Result<Vec<S::Real>, EngineError> {
        if array.element == S::Real::ELEMENT {
            let mut numbers = vec![<S::Real as Default>::default(); array.len];
            self.down(array, &mut numbers)?;
            return Ok(numbers);
        }
        let mut stored = vec![S::default(); array.len];
        self.down(array, &mut stored)?;
        Ok(stored.into_iter().map(|number| number.widen()).collect())
    }

    /// Computes a product.
    pub(super) fn product(&self, shape: ProductShape, a: Array, b: Array, c: Array, accumulate: bool) -> Done {
        let product = Product { shape, a, b, c, accumulate, algorithm: self.algorithms.of(shape, a, b, c) };
        // SAFETY: as of every kernel: views borrow what they are of, and C is borrowed mutably.
        Ok(unsafe { self.lanes.driver().product(self.lanes.compute(), &product) }?)
    }

    /// The starts of queues, where the kernels that spread rows read them.
    pub(super) fn starts(&self, shape: SpreadShape<'_>) -> Result<Option<Array>, EngineError> {
        Ok(match shape.slots {
            Slots::Blocks { .. } => None,
            Slots::Queues(starts) => Some(self.uploads.put_numbers(starts.iter().copied())?),
        })
    }

    /// The rows of experts that a shape has.
    pub(super) fn places(shape: SpreadShape<'_>) -> usize {
        match shape.slots {
            Slots::Blocks { slots, .. } => shape.experts * slots,
            Slots::Queues(starts) => starts[shape.experts],
        }
    }

    /// Positions, and where kernels read the starts of a pass of generation.
    pub(super) fn placed(&self, at: Positions<'_>) -> Result<crate::ops::Positions, EngineError> {
        let starts = match at.starts {
            [] => None,
            starts => Some(self.uploads.put_numbers(starts.iter().copied())?),
        };
        Ok(positions(at, starts))
    }

    /// dtable = (or +=) the rows of dy in the rows of the table that `places` says.
    pub(super) fn add_rows(&self, cols: usize, places: Places, dy: Array, dtable: Array, accumulate: bool) -> Done {
        let (firsts, order) = (self.uploads.put(places.firsts)?, self.uploads.put(places.order)?);
        Ok(self.queue(0)?.add_rows(cols, firsts, order, dy, dtable, accumulate)?)
    }

    /// The scopes of rows.
    pub(super) fn scopes(&self, rows: usize, scope: impl Fn(usize) -> usize) -> Result<Array, EngineError> {
        Ok(self.uploads.put_numbers((0..rows).map(scope))?)
    }
}
