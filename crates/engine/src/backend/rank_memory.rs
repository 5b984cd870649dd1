//! A rank's memory on a device, and the totals that kernels add up there.

use std::borrow::Cow;
use std::ops::Range;

use quadrille_comm::Payload;
use quadrille_step::Scalar;
use quadrille_tensor::Pool;

use super::{Done, Kind, Totals, UpdateRule, View, ViewMut};
use crate::state::samples::OwnSamples;
use crate::{DeviceUse, EngineError, GraphUse, Real, Values};

/// A rank's memory on a device, what passes between it and the host, and the totals of a step.
pub trait RankMemory: Sized + 'static {
    /// Type of arithmetic, and of what checkpoints and checks see: `f32` or `f64`.
    type Real: Real;

    /// Storage type of values and weights.
    type Stored: Values<Real = Self::Real>;

    /// Owned memory, and the payload of collectives: its mover knows in which order collectives and kernels use it.
    type Buffer: Payload<Self::Real> + Payload<Self::Stored>;

    /// A range of a buffer, to be read.
    type View<'v>: View;

    /// A range of a buffer, to be written.
    type ViewMut<'v>: ViewMut;

    /// Numbers of a scalar on their way through a collective.
    type Scalars: Payload<f64>;

    /// A microbatch's samples where kernels read them.
    type Samples: Default;

    /// Angles of some positions, by which queries and keys turn.
    type Angles;

    /// Places of kept elements in the tile of a pruned weight.
    type Indices;

    // Memory.

    /// The device of a rank of the job, with so many threads of the host.
    fn open(rank: usize, threads: usize) -> Result<Self, EngineError>;

    /// The rank's threads of the host.
    fn pool(&self) -> &Pool;

    /// Takes memory for buffers of these sizes at once, where that is better: the next ones of such sizes come from it.
    fn reserve(&self, _buffers: &[u64]) -> Done {
        Ok(())
    }

    /// Memory of the rank on a device that has memory of its own.
    fn memory(&self) -> Result<Option<DeviceUse>, EngineError> {
        Ok(None)
    }

    /// Use of graphs of the rank's kernels; `None`: none are made.
    fn graphs(&self) -> Option<GraphUse> {
        None
    }

    /// A buffer of so many bytes, all zero.
    fn allocate(&self, bytes: u64) -> Result<Self::Buffer, EngineError>;

    /// Bytes of a buffer.
    fn bytes(of: &Self::Buffer) -> u64;

    /// Some elements of a buffer that holds this kind, to be read; a range beyond its end panics.
    fn view(of: &Self::Buffer, kind: Kind, range: Range<usize>) -> Self::View<'_>;

    /// Some elements of a buffer that holds this kind, to be written; a range beyond its end panics.
    fn view_mut(of: &mut Self::Buffer, kind: Kind, range: Range<usize>) -> Self::ViewMut<'_>;

    /// Some elements of a view; a range beyond its end panics.
    fn part<'p>(of: &'p mut Self::ViewMut<'_>, range: Range<usize>) -> Self::ViewMut<'p>;

    /// Lets the host change elements: `write` gets them as they are, and what it leaves is rounded to what they are
    /// stored in.
    fn upload<R>(
        &self,
        to: &mut Self::ViewMut<'_>,
        write: impl FnOnce(&mut [Self::Real]) -> R,
    ) -> Result<R, EngineError>;

    /// Lets the host look at elements.
    fn download<R>(&self, from: Self::View<'_>, read: impl FnOnce(&[Self::Real]) -> R) -> Result<R, EngineError>;

    /// Lets the host write the first bytes of a buffer that no kernel uses; from any thread, done when it returns.
    fn fill<R>(to: &mut Self::Buffer, bytes: usize, write: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Lets the host read the first bytes of a buffer that no kernel uses; from any thread, done when it returns.
    fn look<R>(from: &Self::Buffer, bytes: usize, read: impl FnOnce(&[u8]) -> R) -> R;

    /// Places of kept elements, in ascending order, in memory for `room` of them.
    fn indices(&self, positions: Vec<u32>, room: usize) -> Result<Self::Indices, EngineError>;

    /// Lets the host look at them.
    fn positions<'i>(&self, of: &'i Self::Indices) -> Result<Cow<'i, [u32]>, EngineError>;

    /// Brings a microbatch's samples to where kernels read them; `from` may be left with other memory.
    fn load_samples(&self, from: &mut OwnSamples, to: &mut Self::Samples) -> Done;

    /// Waits until all work is done.
    fn settle(&self) -> Done;

    /// The rank is about to wait for others, through with a section, or with each operation of a trace: what is held
    /// back, to be begun with more, is to begin.
    fn start(&self) -> Done {
        Ok(())
    }

    // Totals of a step.

    /// A step begins: all totals are zero.
    fn begin_step(&self) -> Done;

    /// The totals; waits for them.
    fn totals(&self) -> Result<Totals, EngineError>;

    /// Number of choices of each expert, block after block; waits for it.
    fn loads(&self) -> Result<Vec<u64>, EngineError>;

    /// Summands of a scalar over ranks: for the loss the loss and the number of targets.
    fn take_scalar(&self, scalar: Scalar) -> Result<Self::Scalars, EngineError>;

    /// The sums over ranks take the place of this rank's totals.
    fn put_scalar(&self, scalar: Scalar, summed: Self::Scalars) -> Done;

    /// Decides what [`adamw`](crate::LayerKernels::adamw) does from now on, from the totals of all ranks.
    fn prepare_update(&self, rule: &UpdateRule) -> Done;

    /// Decides it before the norm is known ([`UpdateRule::attempt`]).
    fn prepare_attempt(&self, rule: &UpdateRule) -> Done;
}
