//! The engine's [`Backend`](quadrille_engine::Backend) on a device, method by method.

mod attention;
mod ends;
mod experts;
mod fused;
mod layers;
mod norms;

use std::borrow::Cow;
use std::ops::Range;

use quadrille_engine::{DeviceUse, EngineError, GraphUse, Kind, OwnSamples, RankMemory, Totals, UpdateRule, Values};
use quadrille_step::Scalar;
use quadrille_tensor::Pool;

use super::buffer::done;
use super::{Cuda, DeviceAngles, DeviceBuffer, DeviceIndices, DeviceSamples, DeviceView, DeviceViewMut};
use crate::array::{Element, Number};
use crate::driver::{Memory, Place};

type Done = Result<(), EngineError>;
type Swept = Result<usize, EngineError>;

/// What elements of a kind are.
fn element<S: Values + Number>(kind: Kind) -> Element
where
    S::Real: Number,
{
    match kind {
        Kind::Stored => S::ELEMENT,
        Kind::Real => S::Real::ELEMENT,
    }
}

/// To be read.
type R<'v> = DeviceView<'v>;
/// To be written.
type W<'v> = DeviceViewMut<'v>;

impl<S: Values + Number> RankMemory for Cuda<S>
where
    S::Real: Number,
{
    type Real = S::Real;
    type Stored = S;
    type Buffer = DeviceBuffer;
    type View<'v> = DeviceView<'v>;
    type ViewMut<'v> = DeviceViewMut<'v>;
    type Scalars = Vec<f64>;
    type Samples = DeviceSamples;
    type Angles = DeviceAngles;
    type Indices = DeviceIndices;

    fn open(rank: usize, threads: usize) -> Result<Self, EngineError> {
        Ok(Self::new(rank, threads)?)
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn allocate(&self, bytes: u64) -> Result<DeviceBuffer, EngineError> {
        let part = self.arena.take(self.lanes.driver(), bytes as usize)?;
        Ok(DeviceBuffer::new(&self.lanes, part)?)
    }

    fn reserve(&self, buffers: &[u64]) -> Done {
        Ok(self.arena.reserve(self.lanes.driver(), buffers.iter().map(|bytes| *bytes as usize))?)
    }

    fn memory(&self) -> Result<Option<DeviceUse>, EngineError> {
        let [buffers, alignment] = self.arena.given();
        let driver = self.lanes.driver();
        let Memory { used, total } = driver.device().memory()?;
        let [workspace, used, total] = [driver.device().workspace(), used, total].map(|bytes| bytes as u64);
        let [scratch, pinned] = self.lanes.taken();
        Ok(Some(DeviceUse { buffers, alignment, workspace, scratch, pinned, used, total }))
    }

    fn graphs(&self) -> Option<GraphUse> {
        self.lanes.graphs()
    }

    fn bytes(of: &DeviceBuffer) -> u64 {
        of.bytes() as u64
    }

    fn view(of: &DeviceBuffer, kind: Kind, range: Range<usize>) -> R<'_> {
        DeviceView::of(of.array(element::<S>(kind), range))
    }

    fn view_mut(of: &mut DeviceBuffer, kind: Kind, range: Range<usize>) -> W<'_> {
        DeviceViewMut::of(of.array(element::<S>(kind), range))
    }

    fn part<'p>(of: &'p mut W<'_>, range: Range<usize>) -> W<'p> {
        DeviceViewMut::of(of.array.part(range))
    }

    fn upload<O>(&self, to: &mut W<'_>, write: impl FnOnce(&mut [S::Real]) -> O) -> Result<O, EngineError> {
        self.change(to.array, write)
    }

    fn download<O>(&self, from: R<'_>, read: impl FnOnce(&[S::Real]) -> O) -> Result<O, EngineError> {
        Ok(read(&self.seen(from.array)?))
    }

    fn fill<O>(to: &mut DeviceBuffer, bytes: usize, write: impl FnOnce(&mut [u8]) -> O) -> O {
        let mut host = vec![0; bytes];
        let result = write(&mut host);
        done(to.exchange(bytes, Place::Host(host.as_ptr())));
        result
    }

    fn look<O>(from: &DeviceBuffer, bytes: usize, read: impl FnOnce(&[u8]) -> O) -> O {
        let mut host = vec![0; bytes];
        done(from.exchange(bytes, Place::HostMut(host.as_mut_ptr())));
        read(&host)
    }

    fn indices(&self, positions: Vec<u32>, room: usize) -> Result<DeviceIndices, EngineError> {
        let len = positions.len();
        let bytes = room.max(positions.len()) * size_of::<u32>();
        let memory = self.lanes.take(bytes)?;
        let indices = DeviceIndices { memory, len };
        self.up(&positions, indices.array())?;
        Ok(indices)
    }

    fn positions<'i>(&self, of: &'i DeviceIndices) -> Result<Cow<'i, [u32]>, EngineError> {
        let mut positions = vec![0_u32; of.len];
        self.down(of.array(), &mut positions)?;
        Ok(Cow::Owned(positions))
    }

    fn load_samples(&self, from: &mut OwnSamples, to: &mut DeviceSamples) -> Done {
        self.take_samples(from, to)
    }

    fn settle(&self) -> Done {
        Ok(self.settled()?)
    }

    fn start(&self) -> Done {
        Ok(self.lanes.start()?)
    }

    fn begin_step(&self) -> Done {
        Ok(self.totals.clear()?)
    }

    fn totals(&self) -> Result<Totals, EngineError> {
        Ok(self.totals.get()?)
    }

    fn loads(&self) -> Result<Vec<u64>, EngineError> {
        Ok(self.totals.loads()?.into_iter().map(|load| load as u64).collect())
    }

    fn take_scalar(&self, scalar: Scalar) -> Result<Vec<f64>, EngineError> {
        Ok(self.totals.take(scalar)?)
    }

    fn put_scalar(&self, scalar: Scalar, summed: Vec<f64>) -> Done {
        Ok(self.totals.put(scalar, summed)?)
    }

    fn prepare_update(&self, rule: &UpdateRule) -> Done {
        Ok(self.totals.decide(|totals| rule.update(totals))?)
    }

    fn prepare_attempt(&self, rule: &UpdateRule) -> Done {
        Ok(self.totals.decide(|totals| rule.attempt(totals))?)
    }
}
