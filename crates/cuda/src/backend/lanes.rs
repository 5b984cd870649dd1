//! What each rank has of its device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use quadrille_comm::transport::Carrier;
use quadrille_engine::GraphUse;

use super::batching::Batching;
use super::samples::bytes_of;
use crate::array::{Array, Number};
use crate::driver::{Address, Driver, Event, Fault, Place, Stream};
use crate::memory::{DeviceMemory, Room};
use crate::nccl::Wire;

/// What a rank has of its device: a stream for its kernels, one for what its collectives move, one for bytes that the host
/// looks at beside them.
pub struct Lanes {
    driver: Arc<dyn Driver>,
    /// The driver that everybody here has, where kernels are collected and sent in graphs.
    graphs: Option<Arc<Batching>>,
    compute: Stream,
    traffic: Stream,
    host: Mutex<Stream>,
    /// Events that nobody uses.
    events: Mutex<Vec<Event>>,
    /// What collectives' algorithms use between their steps.
    scratch: Room,
    /// What is brought here from devices that kernels do not reach, and taken there.
    staging: Room,
    wire: OnceLock<Arc<Wire>>,
    /// Bytes of what is taken beside buffers, and of pinned memory of the host.
    taken: Arc<AtomicU64>,
    pinned: Arc<AtomicU64>,
}

impl Lanes {
    /// New streams of a device.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Arc<Self>, Fault> {
        let compute = driver.stream(false)?;
        Self::of(driver, None, compute)
    }

    /// The same, where kernels are sent in graphs.
    pub fn with_graphs(device: Arc<dyn Driver>) -> Result<Arc<Self>, Fault> {
        let compute = device.stream(false)?;
        let batching = Arc::new(Batching::new(device, compute));
        Self::of(batching.clone(), Some(batching), compute)
    }

    fn of(driver: Arc<dyn Driver>, graphs: Option<Arc<Batching>>, compute: Stream) -> Result<Arc<Self>, Fault> {
        let traffic = driver.stream(true)?;
        let host = Mutex::new(driver.stream(true)?);
        let taken = Arc::default();
        let room = || Room::new(&driver, traffic, &taken);
        let scratch = room();
        let staging = room();
        Ok(Arc::new(Self {
            driver,
            graphs,
            compute,
            traffic,
            host,
            events: Mutex::default(),
            scratch,
            staging,
            wire: OnceLock::new(),
            taken,
            pinned: Arc::default(),
        }))
    }

    /// The device.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// All that was put into the stream of kernels is on its way: none of it is held back to be sent with what comes.
    pub fn start(&self) -> Result<(), Fault> {
        self.graphs.as_ref().map_or(Ok(()), |batching| batching.start())
    }

    /// What was done with graphs until now; `None`: none are made.
    pub fn graphs(&self) -> Option<GraphUse> {
        self.graphs.as_ref().map(|batching| batching.told())
    }

    /// The device for work that is sent command by command, and done before anything else comes.
    pub fn at_once(&self) -> Result<&dyn Driver, Fault> {
        self.start()?;
        Ok(self.graphs.as_ref().map_or(&self.driver, |batching| batching.at_once()).as_ref())
    }

    /// So many bytes of any contents, beside the rank's buffers.
    pub fn take(&self, bytes: usize) -> Result<DeviceMemory, Fault> {
        DeviceMemory::new(self.driver.clone(), bytes, &self.taken)
    }

    /// Bytes of what is taken so at present, and of the host's that are pinned.
    pub fn taken(&self) -> [u64; 2] {
        [&self.taken, &self.pinned].map(|bytes| bytes.load(Ordering::Relaxed))
    }

    /// Counts the bytes of the host's memory that are pinned at present.
    pub(super) fn pinned(&self) -> &Arc<AtomicU64> {
        &self.pinned
    }

    /// The stream of kernels.
    pub fn compute(&self) -> Stream {
        self.compute
    }

    /// The stream of collectives.
    pub fn traffic(&self) -> Stream {
        self.traffic
    }

    /// Calls `with` with a stream that nobody else uses meanwhile.
    pub fn with_host<R>(&self, with: impl FnOnce(Stream) -> R) -> R {
        with(*self.host.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies numbers to the device in the order of kernels; they and the copy are done when it returns.
    ///
    /// # Panics
    /// If the array has other elements.
    pub(super) fn up<T: Number>(&self, from: &[T], to: Array) -> Result<(), Fault> {
        assert_eq!((to.len, to.element), (from.len(), T::ELEMENT));
        self.up_bytes(bytes_of(from), to)
    }

    /// The same of bytes.
    ///
    /// # Panics
    /// If the array has another size.
    pub(super) fn up_bytes(&self, from: &[u8], to: Array) -> Result<(), Fault> {
        assert_eq!(to.bytes(), from.len());
        self.copy(Place::Host(from.as_ptr()), Place::Device(to.at), to.bytes())
    }

    /// Copies numbers from the device, likewise.
    ///
    /// # Panics
    /// As there.
    pub(super) fn down<T: Number>(&self, from: Array, to: &mut [T]) -> Result<(), Fault> {
        assert_eq!((from.len, from.element), (to.len(), T::ELEMENT));
        self.copy(Place::Device(from.at), Place::HostMut(to.as_mut_ptr().cast()), from.bytes())
    }

    fn copy(&self, from: Place, to: Place, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the host's memory is borrowed until the stream is done, and the array is of a buffer of this rank; both
        // have so many bytes.
        unsafe { self.driver.copy(self.compute, from, to, bytes) }?;
        self.driver.synchronize(self.compute)
    }

    /// An event that is reached when all commands so far of the stream of kernels are done; to be given back.
    pub fn mark(&self) -> Result<Event, Fault> {
        let spare = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let event = spare.map_or_else(|| self.driver.event(), Ok)?;
        self.driver.record(event, self.compute)?;
        Ok(event)
    }

    /// Takes an event back.
    pub fn give_back(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Memory of at least so many bytes for one collective at a time.
    pub fn scratch(&self, bytes: usize) -> Result<*mut u8, Fault> {
        self.scratch.at_least(bytes).map(|at| at.0 as *mut u8)
    }

    /// Memory of at least so many bytes for what one collective brings from devices out of reach.
    pub fn staging(&self, bytes: usize) -> Result<Address, Fault> {
        self.staging.at_least(bytes)
    }

    /// What carries the rank's buffers to ranks whose memory is out of reach; it is there from the first use on.
    pub(super) fn wire(&self) -> Arc<dyn Carrier> {
        let made = || {
            let arrivals = Room::new(&self.driver, self.traffic, &self.taken);
            Arc::new(Wire::new(&self.driver, self.compute, self.traffic, arrivals))
        };
        self.wire.get_or_init(made).clone()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        drop(self.wire.take()); // it uses the streams
        let host = *self.host.get_mut().unwrap_or_else(PoisonError::into_inner);
        [self.compute, self.traffic, host].into_iter().for_each(|stream| self.driver.close(stream));
        let events = self.events.get_mut().unwrap_or_else(PoisonError::into_inner);
        events.drain(..).for_each(|event| self.driver.forget(event));
    }
}
