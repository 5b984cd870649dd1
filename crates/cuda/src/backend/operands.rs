//! What methods of the backend have in common: numbers between host and device, products, and tables that kernels read.

use std::ops::Range;

use quadrille_engine::{EngineError, OwnSamples, Positions, Values};
use quadrille_tensor::{GroupedShape, ProductShape, Segments, Shape, Slots, SpreadShape, Transpose};

use super::convert::positions;
use super::samples::bytes_of_mut;
use super::{Cuda, DeviceSamples};
use crate::array::{Array, Number};
use crate::driver::{Product, ProductKind};
use crate::ops::{Places, squares_scratch, squares_table, sum_scratch};

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

    /// As [`Lanes::down`](super::Lanes), by way of pinned memory.
    pub(super) fn down<T: Number>(&self, from: Array, to: &mut [T]) -> Done {
        if self.switches.staging {
            assert_eq!((from.len, from.element), (to.len(), T::ELEMENT));
            self.receiving.receive(from, bytes_of_mut(to))?;
        } else {
            self.lanes.down(from, to)?;
        }
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
        self.issue(Product { shape, a, b, c, accumulate, bias: None, algorithm: None })
    }

    /// Computes a product, and adds a bias to each row: at once, which rounds the sum once and the bias before, or apart, where the
    /// library has no algorithm for the sizes and elements. Nothing else decides, so that passes and their recomputation agree.
    pub(super) fn biased_product(&self, shape: ProductShape, a: Array, b: Array, bias: Array, c: Array) -> Done {
        let kind = ProductKind { shape, operands: a.element, result: c.element, bias: true };
        if !self.switches.bias || shape.k == 0 || !self.lanes.driver().device().adds_bias(kind)? {
            self.product(shape, a, b, c, false)?;
            return Ok(self.queue(0)?.bias_forward(Shape { rows: shape.m, cols: shape.n }, c, bias)?);
        }
        let mut product = Product { shape, a, b, c, accumulate: false, bias: Some(bias), algorithm: None };
        if bias.element != c.element {
            // The library's products add what C has.
            let queue = self.queue(bias.len * c.element.bytes())?;
            let rounded = queue.scratch(bias.len, c.element);
            queue.round(rounded, bias)?;
            product.bias = Some(rounded);
        }
        self.issue(product)
    }

    /// Computes a product by the algorithm that was chosen for it.
    fn issue(&self, product: Product) -> Done {
        let Product { shape, a, b, c, bias, .. } = product;
        let algorithm = self.algorithms.of(shape, [a, b, c], bias.is_some());
        let product = Product { algorithm, ..product };
        // SAFETY: as of every kernel: views borrow what they are of, and C is borrowed mutably; scratch is used in the stream's
        // order.
        Ok(unsafe { self.lanes.driver().product(self.lanes.compute(), &product) }?)
    }

    /// The products of the rows of several experts.
    pub(super) fn products_of_experts(
        &self,
        shape: GroupedShape,
        segments: &Segments,
        a: Array,
        b: Array,
        c: Array,
        accumulate: bool,
    ) -> Done {
        let GroupedShape { stored, n, k } = shape;
        for block in 0..segments.blocks() {
            let own = block * k * n..(block + 1) * k * n;
            let runs = segments.pieces(block, 0..segments.rows_of(block));
            if stored != Transpose::Tn {
                for rows in runs {
                    let of_a = rows.start * k..rows.end * k;
                    let of_c = rows.start * n..rows.end * n;
                    let product = ProductShape { stored, m: rows.len(), n, k };
                    self.product(product, a.part(of_a), b.part(own.clone()), c.part(of_c), accumulate)?;
                }
                continue;
            }
            // A block without rows is a product that sums over none.
            let none = (segments.rows_of(block) == 0).then_some(0..0);
            for (run, rows) in none.into_iter().chain(runs).enumerate() {
                let of_a = rows.start * k..rows.end * k;
                let of_b = rows.start * n..rows.end * n;
                let product = ProductShape { stored, m: k, n, k: rows.len() };
                let add = accumulate || run > 0;
                self.product(product, a.part(of_a), b.part(of_b), c.part(own.clone()), add)?;
            }
        }
        Ok(())
    }

    /// Adds the squares of the elements in runs of arrays to the total, by one kernel or one by one.
    pub(super) fn squares(&self, arrays: impl Iterator<Item = (Array, Range<usize>)>) -> Done {
        let total = self.totals.squares();
        let runs: Vec<Array> = arrays.map(|(array, run)| array.part(run)).filter(|run| run.len > 0).collect();
        if !self.switches.squares {
            let one = |run: &Array| Ok(self.queue(sum_scratch(run.len))?.sum_squares(total, *run)?);
            return runs.iter().try_for_each(one);
        }
        let (table, blocks) = squares_table(&runs);
        let table = self.uploads.put(table)?;
        let queue = self.queue(squares_scratch(runs.len(), blocks))?;
        Ok(queue.sum_squares_of_all(S::ELEMENT, table, runs.len(), blocks, total)?)
    }

    /// See [`RankMemory::load_samples`](quadrille_engine::RankMemory::load_samples).
    pub(super) fn take_samples(&self, from: &mut OwnSamples, to: &mut DeviceSamples) -> Done {
        let sent = to.load(from, &self.lanes)?;
        if self.switches.staging {
            // What was issued before the samples that lay in the same piece is done.
            let settled = self.sending.send(&sent, self.uploads.count())?;
            self.uploads.settled_to(settled);
            return Ok(());
        }
        for (from, to) in sent {
            self.lanes.up_bytes(from, to)?;
        }
        self.uploads.settled();
        Ok(())
    }

    /// Elements as the host leaves them.
    pub(super) fn change<O>(&self, to: Array, write: impl FnOnce(&mut [S::Real]) -> O) -> Result<O, EngineError> {
        let mut numbers = self.seen(to)?;
        let result = write(&mut numbers);
        if to.element == S::Real::ELEMENT {
            self.up(&numbers, to)?;
        } else {
            let stored: Vec<S> = numbers.into_iter().map(<S as quadrille_tensor::Stored>::rounded).collect();
            self.up(&stored, to)?;
        }
        Ok(result)
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
        let firsts = self.uploads.put(places.firsts)?;
        let order = self.uploads.put(places.order)?;
        Ok(self.queue(0)?.add_rows(cols, firsts, order, dy, dtable, accumulate)?)
    }

    /// The scopes of rows.
    pub(super) fn scopes(&self, rows: usize, scope: impl Fn(usize) -> usize) -> Result<Array, EngineError> {
        Ok(self.uploads.put_numbers((0..rows).map(scope))?)
    }
}
