//! A rank's device whose stream of kernels is sent in rows of commands.
//!
//! What comes to the stream of kernels is collected, and sent before anybody can tell: before an event is recorded in the stream or waited
//! for by it, before copies from and to the host, before the host waits for the stream, when the rank is about to wait for others, and
//! from a number of commands on. All else goes to the device at once. So orders are those of the commands one by one.

#[cfg(all(test, emulated))]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quadrille_engine::GraphUse;

use super::batch::{Batch, Step};
use super::graphs::KnownRows;
use crate::driver::{Address, Driver, Event, Facts, Fault, Launch, Place, Product, Stream};
use crate::graph::Graphs;

/// The most commands that are collected: taken to be enough that what it takes to start a graph is little for each, and few enough that
/// the device does not wait for the host to collect them, which is not measured.
const MOST_COMMANDS: usize = 128;

/// A device, and what is collected for one of its streams.
pub struct Batching {
    device: Arc<dyn Driver>,
    stream: Stream,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    batch: Batch,
    rows: KnownRows,
    /// What went wrong when commands were sent: those behind it never were, so that nothing may come after them.
    failed: Option<Fault>,
}

impl Collected {
    fn check(&self) -> Result<(), Fault> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

impl Batching {
    /// Of a device, for its stream of a rank's kernels.
    pub fn new(device: Arc<dyn Driver>, stream: Stream) -> Self {
        Self { device, stream, collected: Mutex::default() }
    }

    /// The device, whose commands are not collected.
    pub fn at_once(&self) -> &Arc<dyn Driver> {
        &self.device
    }

    /// What was done with graphs until now.
    pub fn told(&self) -> GraphUse {
        self.collected().rows.told()
    }

    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is collected.
    pub fn start(&self) -> Result<(), Fault> {
        self.sent().map(drop)
    }

    /// What is collected, all of which is sent.
    fn sent(&self) -> Result<MutexGuard<'_, Collected>, Fault> {
        let mut collected = self.collected();
        self.send(&mut collected)?;
        Ok(collected)
    }

    fn send(&self, collected: &mut Collected) -> Result<(), Fault> {
        collected.check()?;
        let Collected { batch, rows, failed } = collected;
        let count = batch.steps().len();
        if count == 0 {
            return Ok(());
        }
        // SAFETY: of each command its caller has promised what is asked; memory is freed below, when graphs are forgotten.
        let sent = unsafe { rows.send(self.device.as_ref(), self.stream, batch) };
        batch.empty();
        sent.map_err(|fault| {
            let text = format!("{}, at or before here: {count} commands were sent together", fault.text);
            failed.insert(Fault { text, ..fault }).clone()
        })
    }

    /// Takes a command for the stream of kernels.
    fn collect(&self, with: impl FnOnce(&mut Batch)) -> Result<(), Fault> {
        let mut collected = self.collected();
        collected.check()?;
        with(&mut collected.batch);
        if collected.batch.steps().len() < MOST_COMMANDS { Ok(()) } else { self.send(&mut collected) }
    }
}

impl Drop for Batching {
    fn drop(&mut self) {
        self.collected().rows.forget(self.device.as_ref());
    }
}

impl Driver for Batching {
    fn device(&self) -> &dyn Facts {
        self.device.device()
    }

    fn record(&self, event: Event, on: Stream) -> Result<(), Fault> {
        // Nothing is collected before the event is recorded.
        let _sent = (on == self.stream).then(|| self.sent()).transpose()?;
        self.device.record(event, on)
    }

    fn wait(&self, on: Stream, event: Event) -> Result<(), Fault> {
        let _sent = (on == self.stream).then(|| self.sent()).transpose()?;
        self.device.wait(on, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        // Held until the stream is done: a stream of which another thread makes a graph cannot be waited for.
        let mut held = (stream == self.stream).then(|| self.collected());
        let sent = held.as_mut().map_or(Ok(()), |collected| self.send(collected));
        // Also after a fault: whoever waits may free what commands use that were sent before.
        let done = self.device.synchronize(stream);
        sent.and(done)
    }

    unsafe fn copy(&self, on: Stream, from: Place, to: Place, bytes: usize) -> Result<(), Fault> {
        let mut _sent = None;
        if on == self.stream {
            if let (Place::Device(from), Place::Device(to)) = (from, to) {
                return self.collect(|batch| batch.push(Step::Copy { from, to, bytes }));
            }
            _sent = Some(self.sent()?);
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.copy(on, from, to, bytes) }
    }

    unsafe fn clear(&self, on: Stream, at: Address, bytes: usize) -> Result<(), Fault> {
        if on == self.stream {
            return self.collect(|batch| batch.push(Step::Clear { at, bytes }));
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.clear(on, at, bytes) }
    }

    unsafe fn launch(&self, on: Stream, launch: &Launch<'_>) -> Result<(), Fault> {
        if on == self.stream {
            return self.collect(|batch| batch.launch(launch));
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.launch(on, launch) }
    }

    unsafe fn product(&self, on: Stream, product: &Product) -> Result<(), Fault> {
        if on == self.stream {
            product.check();
            return self.collect(|batch| batch.push(Step::Product(*product)));
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.product(on, product) }
    }

    unsafe fn free(&self, at: Address) -> Result<(), Fault> {
        // Copies and products of graphs have places for good. Memory is seldom freed between steps: where masks are set anew, where
        // prompts borrow, and where a room grows.
        self.collected().rows.forget(self.device.as_ref());
        // SAFETY: the caller's promise.
        unsafe { self.device.free(at) }
    }

    fn close(&self, stream: Stream) {
        if stream == self.stream {
            let mut collected = self.collected();
            collected.batch.empty();
            collected.rows.forget(self.device.as_ref());
        }
        self.device.close(stream);
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Fault> {
        self.device.allocate(bytes)
    }

    fn guard(&self, at: Address, bytes: usize) {
        self.device.guard(at, bytes);
    }

    fn reaches(&self, at: Address) -> Result<bool, Fault> {
        self.device.reaches(at)
    }

    fn stream(&self, urgent: bool) -> Result<Stream, Fault> {
        self.device.stream(urgent)
    }

    fn event(&self) -> Result<Event, Fault> {
        self.device.event()
    }

    fn forget(&self, event: Event) {
        self.device.forget(event);
    }

    fn query(&self, event: Event) -> Result<bool, Fault> {
        self.device.query(event)
    }

    fn await_event(&self, event: Event) -> Result<(), Fault> {
        self.device.await_event(event)
    }

    fn pin(&self, bytes: usize) -> Result<*mut u8, Fault> {
        self.device.pin(bytes)
    }

    unsafe fn unpin(&self, at: *mut u8) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.device.unpin(at) }
    }
}

/// Nobody else makes graphs of what is collected.
impl Graphs for Batching {}
