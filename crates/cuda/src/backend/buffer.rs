//! Buffers of a rank on its device, ranges of them, and who moves them.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use quadrille_comm::transport::Carrier;
use quadrille_comm::{Element as Moved, ElementKind, Memory, Mover, Payload, Reduction};
use quadrille_engine::{View, ViewMut};

use super::arena::Part;
use super::devices;
use super::lanes::Lanes;
use super::peers::stage;
use crate::array::{Array, Element};
use crate::driver::{ALIGNED, Address, Event, Fault, Place};
use crate::queue::Queue;

/// Owned bytes of a rank on its device.
pub struct DeviceBuffer {
    part: Part,
    lanes: Arc<Lanes>,
}

impl DeviceBuffer {
    /// Some bytes, all zero once the commands so far of the rank's stream of kernels are done.
    pub(super) fn new(lanes: &Arc<Lanes>, part: Part) -> Result<Self, Fault> {
        let buffer = Self { part, lanes: lanes.clone() };
        // SAFETY: the memory is the buffer's.
        unsafe { lanes.driver().clear(lanes.compute(), buffer.part.at(), buffer.bytes()) }?;
        Ok(buffer)
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.part.bytes()
    }

    /// Some of its elements.
    pub fn array(&self, element: Element, range: Range<usize>) -> Array {
        Array { at: self.part.at(), len: self.bytes() / element.bytes(), element }.part(range)
    }

    /// Copies the first bytes to or from the host's memory, which has as many, after the kernels that the rank has issued;
    /// done when it returns.
    pub fn exchange(&self, bytes: usize, host: Place) -> Result<(), Fault> {
        assert!(bytes <= self.bytes(), "{bytes} of {} bytes", self.bytes());
        let driver = self.lanes.driver();
        let device = Place::Device(self.part.at());
        let (from, to) = if matches!(host, Place::Host(_)) { (host, device) } else { (device, host) };
        // Kernels that were issued before may still use the buffer, though the rank is through with them.
        driver.synchronize(self.lanes.compute())?;
        self.lanes.with_host(|stream| {
            // SAFETY: both have so many bytes, and no kernel uses the buffer.
            unsafe { driver.copy(stream, from, to, bytes) }?;
            driver.synchronize(stream)
        })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // Kernels that use it may not be done. If the device has failed they never will be.
        let _ = self.lanes.driver().synchronize(self.lanes.compute());
    }
}

impl<T: Moved> Payload<T> for DeviceBuffer {
    type Mover = DeviceMover;

    fn mover(&self) -> DeviceMover {
        DeviceMover { after: Some(done(self.lanes.mark())), lanes: self.lanes.clone() }
    }

    fn memory(&mut self) -> Memory<'_> {
        let elements = self.bytes() / T::KIND.bytes();
        // SAFETY: the buffer has so many, for its mover alone, and is borrowed for as long.
        unsafe { Memory::new(self.part.at().0 as *mut u8, elements, T::KIND) }
    }
}

/// What has no way to return a fault: the job catches the panic, names the rank and stops all others.
pub(super) fn done<T>(outcome: Result<T, Fault>) -> T {
    outcome.unwrap_or_else(|fault| panic!("{fault}"))
}

/// Reduces and copies on the rank's stream of traffic.
pub struct DeviceMover {
    /// What the rank's kernels did before the call; there until it is dropped.
    after: Option<Event>,
    lanes: Arc<Lanes>,
}

impl DeviceMover {
    fn queue(&self) -> Queue<'_> {
        let scratch = Array { at: Address::NONE, len: 0, element: Element::F64 };
        // SAFETY: callers of the mover promise their buffers until the fence; reducing needs no scratch.
        unsafe { Queue::new(self.lanes.driver().as_ref(), self.lanes.traffic(), scratch) }
    }
}

impl DeviceMover {
    /// Reduces arrays by a kernel; those that it does not reach by way of the rank's own memory.
    fn reduce_arrays(&self, how: Reduction, from: &[Array], to: &[Array]) -> Result<(), Fault> {
        if from.iter().all(|array| array.len == 0) {
            return Ok(());
        }
        let driver = self.lanes.driver();
        let reached =
            |arrays: &[Array]| arrays.iter().map(|array| driver.reaches(array.at)).collect::<Result<Vec<_>, _>>();
        let staged = stage(&reached(from)?, &reached(to)?);
        let size = from.first().map_or(0, |array| array.bytes()).next_multiple_of(ALIGNED);
        let memory = if staged.slots > 0 { self.lanes.staging(staged.slots * size)? } else { Address::NONE };
        let in_slot = |array: Array, slot: usize| Array { at: memory.offset(slot * size), ..array };
        let mut sources = from.to_vec();
        for (source, slot) in sources.iter_mut().zip(staged.from) {
            if let Some(slot) = slot {
                let here = in_slot(*source, slot);
                self.copy_array(*source, here)?;
                *source = here;
            }
        }
        let mut written: Vec<Array> = staged.written.iter().map(|at| to[*at]).collect();
        written.extend(staged.result.map(|slot| in_slot(from[0], slot)));
        self.queue().reduce(how == Reduction::Max, &sources, &written)?;
        staged.copied.into_iter().try_for_each(|at| self.copy_array(written[0], to[at]))
    }

    fn copy_array(&self, from: Array, to: Array) -> Result<(), Fault> {
        // SAFETY: both are buffers of the collective, as its caller promises, or memory of the rank's own, of one size.
        unsafe {
            self.lanes.driver().copy(self.lanes.traffic(), Place::Device(from.at), Place::Device(to.at), from.bytes())
        }
    }
}

impl Drop for DeviceMover {
    fn drop(&mut self) {
        self.after.take().into_iter().for_each(|event| self.lanes.give_back(event));
    }
}

fn array(at: *const u8, of: ElementKind, len: usize) -> Array {
    let element = match of {
        ElementKind::F64 => Element::F64,
        ElementKind::F32 => Element::F32,
        ElementKind::Bf16 => Element::Bf16,
        ElementKind::F16 => unreachable!("no backend of a device stores f16"),
    };
    Array { at: Address(at as u64), len, element }
}

impl Mover for DeviceMover {
    fn begin(&self) {
        let driver = self.lanes.driver();
        let traffic = self.lanes.traffic();
        self.after.into_iter().for_each(|event| done(driver.wait(traffic, event)));
        done(driver.synchronize(traffic));
    }

    fn scratch(&self, _room: &mut Vec<u64>, bytes: usize) -> *mut u8 {
        done(self.lanes.scratch(bytes))
    }

    unsafe fn reduce(
        &self,
        how: Reduction,
        of: ElementKind,
        from: &[*const u8],
        to: &[*mut u8],
        n: usize,
        _stream: bool,
    ) -> usize {
        let from: Vec<Array> = from.iter().map(|at| array(*at, of, n)).collect();
        let to: Vec<Array> = to.iter().map(|at| array(at.cast_const(), of, n)).collect();
        done(self.reduce_arrays(how, &from, &to));
        to.len() * n * of.bytes()
    }

    unsafe fn copy(&self, of: ElementKind, from: *const u8, to: *mut u8, n: usize, _stream: bool) -> usize {
        let bytes = n * of.bytes();
        let driver = self.lanes.driver();
        let place = |at| Place::Device(Address(at));
        // SAFETY: the caller's promise.
        done(unsafe { driver.copy(self.lanes.traffic(), place(from as u64), place(to as u64), bytes) });
        bytes
    }

    fn fence(&self) {
        done(self.lanes.driver().synchronize(self.lanes.traffic()));
    }

    fn carrier(&self, shared: bool) -> Option<Arc<dyn Carrier>> {
        (!shared || devices::are_apart()).then(|| self.lanes.wire())
    }
}

/// Elements of a buffer, to be read.
#[derive(Debug, Clone, Copy)]
pub struct DeviceView<'v> {
    pub(super) array: Array,
    lent: PhantomData<&'v ()>,
}

impl DeviceView<'_> {
    /// An array of a buffer that is borrowed for as long.
    pub(super) fn of(array: Array) -> Self {
        Self { array, lent: PhantomData }
    }
}

impl View for DeviceView<'_> {
    fn elements(self) -> usize {
        self.array.len
    }

    fn part(self, range: Range<usize>) -> Self {
        Self { array: self.array.part(range), ..self }
    }
}

/// Elements of a buffer, to be written.
#[derive(Debug)]
pub struct DeviceViewMut<'v> {
    pub(super) array: Array,
    lent: PhantomData<&'v mut ()>,
}

impl DeviceViewMut<'_> {
    /// An array of a buffer that is borrowed mutably for as long.
    pub(super) fn of(array: Array) -> Self {
        Self { array, lent: PhantomData }
    }
}

impl ViewMut for DeviceViewMut<'_> {
    fn elements(&self) -> usize {
        self.array.len
    }
}
