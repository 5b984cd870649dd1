//! The processor: kernels of `quadrille_tensor` on the rank's own threads. Every method is done when it returns.

mod attention;
mod ends;
mod experts;
mod layers;
mod norms;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::mem::swap;
use std::ops::Range;

use quadrille_spec::IGNORED;
use quadrille_step::Scalar;
use quadrille_tensor as kernels;
use quadrille_tensor::{Buffer, Pool, Rotary};

use super::loads::Loads;
use super::memory::{Bytes, Numbers, NumbersMut};
use super::{Done, Kind, RankMemory, Totals, Update, UpdateRule};
use crate::EngineError;
use crate::state::samples::OwnSamples;

/// Kernels and everyone else mean the same targets.
const _: () = assert!(kernels::IGNORED == IGNORED);

/// A rank's threads, and what its kernels add up. Values are stored in elements of type `S`.
pub struct Cpu<S> {
    pool: Pool,
    totals: Cell<Totals>,
    loads: Loads,
    update: Cell<Update>,
    /// For operands of products that are transposed first.
    scratch: RefCell<Buffer<S>>,
}

impl<S> Cpu<S> {
    /// Adds to the totals.
    fn add(&self, loss: f64, targets: u64) {
        let totals = self.totals.get();
        self.totals.set(Totals { loss: totals.loss + loss, targets: totals.targets + targets, ..totals });
    }
}

for_each_element! {
impl RankMemory for Cpu<S> {
    type Real = <S as kernels::Stored>::Real;
    type Stored = S;
    type Buffer = Bytes;
    type View<'v> = Numbers<'v, S>;
    type ViewMut<'v> = NumbersMut<'v, S>;
    type Scalars = Vec<f64>;
    type Samples = OwnSamples;
    type Angles = Rotary<Self::Real>;
    type Indices = Vec<u32>;

    fn open(_rank: usize, threads: usize) -> Result<Self, EngineError> {
        let totals = Cell::default();
        let update = Cell::default();
        let scratch = RefCell::default();
        Ok(Self { pool: Pool::new(threads), totals, loads: Loads::default(), update, scratch })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn allocate(&self, bytes: u64) -> Result<Bytes, EngineError> {
        Ok(Bytes::new(bytes as usize))
    }

    fn bytes(of: &Bytes) -> u64 {
        of.len() as u64
    }

    fn view(of: &Bytes, kind: Kind, range: Range<usize>) -> Numbers<'_, S> {
        Numbers::of(of, kind, range)
    }

    fn view_mut(of: &mut Bytes, kind: Kind, range: Range<usize>) -> NumbersMut<'_, S> {
        NumbersMut::of(of, kind, range)
    }

    fn part<'p>(of: &'p mut NumbersMut<'_, S>, range: Range<usize>) -> NumbersMut<'p, S> {
        of.part(range)
    }

    fn upload<R>(
        &self,
        to: &mut NumbersMut<'_, S>,
        write: impl FnOnce(&mut [Self::Real]) -> R,
    ) -> Result<R, EngineError> {
        Ok(to.changed(write))
    }

    fn download<R>(&self, from: Numbers<'_, S>, read: impl FnOnce(&[Self::Real]) -> R) -> Result<R, EngineError> {
        Ok(from.seen(read))
    }

    fn fill<R>(to: &mut Bytes, bytes: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        write(&mut to.elements_mut()[..bytes])
    }

    fn look<R>(from: &Bytes, bytes: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        read(&from.elements()[..bytes])
    }

    fn indices(&self, mut positions: Vec<u32>, room: usize) -> Result<Vec<u32>, EngineError> {
        positions.shrink_to(room);
        positions.reserve_exact(room - positions.len());
        Ok(positions)
    }

    fn positions<'i>(&self, of: &'i Vec<u32>) -> Result<Cow<'i, [u32]>, EngineError> {
        Ok(Cow::Borrowed(of))
    }

    fn load_samples(&self, from: &mut OwnSamples, to: &mut OwnSamples) -> Done {
        swap(from, to);
        Ok(())
    }

    fn settle(&self) -> Done {
        Ok(())
    }

    fn begin_step(&self) -> Done {
        self.totals.set(Totals::default());
        self.loads.put(Vec::new());
        Ok(())
    }

    fn totals(&self) -> Result<Totals, EngineError> {
        Ok(self.totals.get())
    }

    fn loads(&self) -> Result<Vec<u64>, EngineError> {
        Ok(self.loads.counts())
    }

    fn take_scalar(&self, scalar: Scalar) -> Result<Vec<f64>, EngineError> {
        let mut summands = self.totals.get().of(scalar);
        if let Scalar::Routers { experts } = scalar {
            summands.extend(self.loads.take(experts));
        }
        Ok(summands)
    }

    fn put_scalar(&self, scalar: Scalar, mut summed: Vec<f64>) -> Done {
        if let Scalar::Routers { .. } = scalar {
            self.loads.put(summed.split_off(Totals::OF_ROUTERS));
        }
        self.totals.set(self.totals.get().with(scalar, &summed));
        Ok(())
    }

    fn prepare_update(&self, rule: &UpdateRule) -> Done {
        self.update.set(rule.update(self.totals.get()));
        Ok(())
    }

    fn prepare_attempt(&self, rule: &UpdateRule) -> Done {
        self.update.set(rule.attempt(self.totals.get()));
        Ok(())
    }
}
}
