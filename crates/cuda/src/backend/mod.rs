//! What a rank computes with on a device: the engine's [`Backend`] by the methods of [`Queue`].
//!
//! Kernels are put into the rank's stream and done later, in their order. The host waits where it looks at numbers, where
//! collectives begin, and where the samples before the last are still under way.

mod algorithms;
mod arena;
mod batch;
mod batching;
mod buffer;
mod convert;
mod devices;
mod graphs;
mod kernels;
mod kind;
mod lanes;
mod operands;
mod peers;
mod samples;
mod staging;
mod switches;
#[cfg(all(test, emulated))]
mod tests;
mod totals;
mod uploads;
mod yardstick;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use quadrille_engine::{EngineError, Values};
use quadrille_tensor::Pool;

use crate::array::{Array, Element, Number};
use crate::driver::Fault;
use crate::memory::DeviceMemory;
use crate::queue::Queue;
use algorithms::Chosen;
use arena::Arena;
pub use buffer::{DeviceBuffer, DeviceMover, DeviceView, DeviceViewMut};
pub use devices::{DeviceKind, choose, emulate_by, have_rank, keep_apart};
pub use lanes::Lanes;
pub use samples::DeviceSamples;
use staging::Staging;
use switches::Switches;
use totals::DeviceTotals;
use uploads::Uploads;

impl From<Fault> for EngineError {
    fn from(fault: Fault) -> Self {
        EngineError::of_device(fault)
    }
}

/// A rank's share of a device, on which values are stored in elements of type `S`.
pub struct Cuda<S> {
    pool: Pool,
    lanes: Arc<Lanes>,
    totals: DeviceTotals,
    uploads: Uploads,
    /// What kernels need between two stages.
    scratch: RefCell<DeviceMemory>,
    arena: Arena,
    algorithms: Chosen,
    switches: Switches,
    /// By which samples go to the device, and by which the host looks at numbers.
    sending: Staging,
    receiving: Staging,
    elements: PhantomData<fn() -> S>,
}

/// Places of kept elements in the tile of a pruned weight.
pub struct DeviceIndices {
    memory: DeviceMemory,
    len: usize,
}

impl DeviceIndices {
    fn array(&self) -> Array {
        self.memory.array(Element::U32).part(0..self.len)
    }
}

/// Angles of some positions, on the device.
pub struct DeviceAngles {
    memory: DeviceMemory,
    /// Pairs of columns that turn.
    pairs: usize,
    len: usize,
}

impl<S: Values + Number> Cuda<S>
where
    S::Real: Number,
{
    fn new(rank: usize, threads: usize) -> Result<Self, Fault> {
        let device = devices::of_rank(rank)?;
        let switches = devices::switches(device.as_ref())?;
        let lanes = if switches.graphs { Lanes::with_graphs(device)? } else { Lanes::new(device)? };
        // Now: to pin memory may wait for what runs on the device, and a message's receive may run there long.
        let pinned = if switches.staging { lanes.driver().device().piece() } else { 0 };
        Ok(Self {
            pool: Pool::new(threads),
            totals: DeviceTotals::new(lanes.clone(), S::Real::ELEMENT)?,
            uploads: Uploads::new(lanes.clone()),
            scratch: RefCell::new(lanes.take(0)?),
            arena: Arena::default(),
            algorithms: Chosen::default(),
            switches,
            sending: Staging::new(lanes.clone(), pinned)?,
            receiving: Staging::new(lanes.clone(), pinned)?,
            lanes,
            elements: PhantomData,
        })
    }

    /// The rank's stream, with scratch of so many bytes.
    fn queue(&self, scratch: usize) -> Result<Queue<'_>, Fault> {
        let mut memory = self.scratch.borrow_mut();
        if memory.bytes() < scratch {
            self.settled()?;
            *memory = self.lanes.take(scratch)?;
        }
        // SAFETY: views borrow the buffers that they are of, whose owners free them when the stream is done; kernels write
        // what they get `&mut` alone. The scratch is this rank's, and used in the stream's order.
        let queue =
            unsafe { Queue::new(self.lanes.driver().as_ref(), self.lanes.compute(), memory.array(Element::F64)) };
        Ok(queue.with_wgmma(self.switches.wgmma))
    }

    /// Waits until the rank's kernels are done.
    fn settled(&self) -> Result<(), Fault> {
        self.lanes.driver().synchronize(self.lanes.compute())?;
        self.uploads.settled();
        Ok(())
    }
}

impl<S> Drop for Cuda<S> {
    fn drop(&mut self) {
        // Kernels may still use what is freed with it. If the device has failed they never will again.
        let _ = self.lanes.driver().synchronize(self.lanes.compute());
    }
}
