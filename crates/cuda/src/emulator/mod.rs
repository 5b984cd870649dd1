//! A device that needs none: kernels compiled for the processor, streams whose commands are done late.
//!
//! What a program may not rely on is drawn from a seed: the order in which threads and blocks run, the number of blocks,
//! which stream's command is next. Nothing is done before the host waits. Memory is not a number before it is written
//! and after it is freed. So what is missing, a barrier or an event, gives a wrong result.

mod facts;
mod graphs;
mod machine;
mod memory;
mod native;
mod nccl;
mod product;
mod streams;
mod told;

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::yield_now;

use crate::driver::{Address, Driver, Event, Facts, Fault, Launch, Place, Product, ProductKind, Stream};
use crate::sources::entry_point;
use graphs::Kept;
pub use graphs::{GraphTally, GraphTrouble};
use machine::Place as Slot;
use memory::Allocations;
pub use nccl::{Tally, Trouble};
use streams::{Command, Streams};

/// The name by which faults of the emulated device are told.
const LIBRARY: &str = "emulated device";

fn fault(text: impl Into<String>) -> Fault {
    Fault { library: LIBRARY, code: -1, text: text.into() }
}

/// An emulated device.
pub struct Emulator {
    state: Arc<Mutex<State>>,
    kernels: HashMap<&'static str, native::Kernel>,
    /// What kernels run without.
    without: Option<native::Barrier>,
    slot: Slot,
}

pub(super) struct State {
    random: Random,
    memory: Allocations,
    /// The host's that is pinned.
    pinned: Allocations,
    streams: Streams,
    graphs: Kept,
    /// Of communicators.
    tally: Tally,
    trouble: Option<Trouble>,
}

impl Emulator {
    /// A device that draws from a seed.
    pub fn new(seed: u64) -> Self {
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let state = State {
            random,
            memory: Allocations::default(),
            pinned: Allocations::default(),
            streams: Streams::default(),
            graphs: Kept::default(),
            tally: Tally::default(),
            trouble: None,
        };
        Self { state: Arc::new(Mutex::new(state)), kernels: native::kernels(), without: None, slot: Slot::default() }
    }

    /// The device of a number in a machine of several, whose kernels reach the memory of their neighbours alone.
    pub fn in_machine(seed: u64, number: usize) -> Self {
        Self { slot: Slot::of(number), ..Self::new(seed) }
    }

    /// A device on which threads do not wait where a line of a file of kernels says so: a negative control, which must give
    /// wrong results.
    ///
    /// # Panics
    /// If the file's name has a zero.
    pub fn without_barrier(seed: u64, file: &str, line: u32) -> Self {
        let file = CString::new(file).expect("names have no zeros");
        Self { without: Some(native::Barrier { file, line }), ..Self::new(seed) }
    }

    /// The device with a call of the library of collectives that goes wrong.
    pub fn with_trouble(self, trouble: Trouble) -> Self {
        self.state().trouble = Some(trouble);
        self
    }

    /// Its communicators until now.
    pub fn communicators(&self) -> Tally {
        self.state().tally
    }

    /// Whether all that was given to it is done.
    pub fn is_idle(&self) -> bool {
        self.state().streams.are_done()
    }

    /// The kernel of a launch, and its entry point.
    fn kernel(&self, launch: &Launch<'_>) -> Result<(String, native::Kernel), Fault> {
        let entry = entry_point(launch.kernel, launch.format);
        let kernel = self.kernels.get(entry.as_str()).ok_or_else(|| fault(format!("there is no kernel {entry}")))?;
        Ok((entry, *kernel))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does commands, in an order that is drawn, until the streams are so.
    fn run_until(&self, is_so: impl Fn(&mut Streams) -> Result<bool, Fault>) -> Result<MutexGuard<'_, State>, Fault> {
        loop {
            let mut state = self.state();
            let mut goes_on = true;
            while goes_on {
                if is_so(&mut state.streams)? {
                    return Ok(state);
                }
                goes_on = self.run_one(&mut state)?;
            }
            // Others of this device may be those that are waited for.
            drop(state);
            yield_now();
        }
    }

    /// Does one of the commands that may be next; whether it was not to wait for others.
    fn run_one(&self, state: &mut State) -> Result<bool, Fault> {
        let State { random, streams, .. } = &mut *state;
        let Some(command) = streams.next(|count| random.below(count))? else { return Ok(false) };
        self.run(state, command).map(|()| true)
    }

    fn run(&self, state: &mut State, command: Command) -> Result<(), Fault> {
        match command {
            // It was done where it stood.
            Command::Remote(_) => Ok(()),
            Command::Kernel { kernel, blocks, shared, words } => {
                let blocks = 1 + state.random.below(blocks as usize) as u32;
                let compiled = self.kernels[kernel.as_str()];
                // SAFETY: whoever launched it has promised that its arguments are there until it is done.
                unsafe { compiled.run(&words, blocks, shared, state.random.next(), self.without.as_ref()) }
                    .map_err(|text| fault(format!("kernel {kernel}: {text}")))
            }
            Command::Copy { from, to, bytes } => {
                // SAFETY: the promise of `Driver::copy`.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
                Ok(())
            }
            Command::Clear { at, bytes } => {
                // SAFETY: the promise of `Driver::clear`.
                unsafe { (at.0 as *mut u8).write_bytes(0, bytes) };
                Ok(())
            }
            Command::Product(product) => {
                // SAFETY: the promise of `Driver::product`.
                unsafe { product::run(&product) };
                Ok(())
            }
        }
    }

    fn push(&self, on: Stream, command: Command) -> Result<(), Fault> {
        let state = &mut *self.state();
        match state.graphs.keep(on, command)? {
            Some(command) => state.streams.push(on, command),
            None => Ok(()),
        }
    }

    /// The device, of a thread that asks what none asks while it makes a graph.
    fn asked(&self, what: &str) -> Result<MutexGuard<'_, State>, Fault> {
        let state = self.state();
        state.graphs.refuse_making(what)?;
        Ok(state)
    }

    /// A kernel uses what it reaches alone.
    fn check_reach(&self, entry: &str, words: &[u64]) -> Result<(), Fault> {
        match words.iter().find(|word| !self.slot.reaches(Address(**word))) {
            None => Ok(()),
            Some(word) => {
                let text = format!("kernel {entry} uses {word:#x}, in the memory of a device that it does not reach");
                Err(fault(text))
            }
        }
    }
}

impl Driver for Emulator {
    fn device(&self) -> &dyn Facts {
        self
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Fault> {
        let at = self.asked("memory taken")?.memory.allocate(bytes)?;
        self.slot.own(at, bytes);
        Ok(at)
    }

    unsafe fn free(&self, at: Address) -> Result<(), Fault> {
        let state = &mut *self.asked("memory freed")?;
        self.slot.disown(at);
        state.graphs.freed(at, state.memory.bytes(at));
        state.memory.free(at)
    }

    fn guard(&self, at: Address, bytes: usize) {
        self.state().memory.guard(at, bytes);
    }

    fn reaches(&self, at: Address) -> Result<bool, Fault> {
        Ok(self.slot.reaches(at))
    }

    fn stream(&self, _urgent: bool) -> Result<Stream, Fault> {
        Ok(self.state().streams.open())
    }

    fn close(&self, stream: Stream) {
        let state = &mut *self.state();
        if state.graphs.close(stream) {
            state.streams.close(stream);
        }
    }

    fn event(&self) -> Result<Event, Fault> {
        Ok(self.state().streams.event())
    }

    fn forget(&self, event: Event) {
        self.state().streams.forget(event);
    }

    fn record(&self, event: Event, on: Stream) -> Result<(), Fault> {
        let mut state = self.state();
        state.graphs.refuse_on(on, "an event recorded in a stream")?;
        state.streams.record(event, on)
    }

    fn wait(&self, on: Stream, event: Event) -> Result<(), Fault> {
        let mut state = self.state();
        state.graphs.refuse_on(on, "an event waited for in a stream")?;
        state.streams.wait(on, event)
    }

    fn query(&self, event: Event) -> Result<bool, Fault> {
        let mut state = self.asked("an event asked for")?;
        // Whoever asks again and again gets on, by a command at a time.
        if !state.streams.is_reached(event)? {
            self.run_one(&mut state)?;
        }
        state.streams.is_reached(event)
    }

    fn await_event(&self, event: Event) -> Result<(), Fault> {
        drop(self.asked("an event waited for")?);
        self.run_until(|streams| streams.is_reached(event)).map(drop)
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        self.asked("a stream waited for")?.graphs.refuse_on(stream, "a stream waited for")?;
        let mut state = self.run_until(|streams| streams.is_done(stream))?;
        state.graphs.refuse_on(stream, "a stream waited for")?;
        state.memory.check()?;
        state.pinned.check()
    }

    fn pin(&self, bytes: usize) -> Result<*mut u8, Fault> {
        Ok(self.asked("memory pinned")?.pinned.allocate(bytes.max(1))?.0 as *mut u8)
    }

    unsafe fn unpin(&self, at: *mut u8) -> Result<(), Fault> {
        self.asked("pinned memory given back")?.pinned.free(Address(at as u64))
    }

    unsafe fn copy(&self, on: Stream, from: Place, to: Place, bytes: usize) -> Result<(), Fault> {
        let address = |place| match place {
            Place::Host(at) => at as usize,
            Place::HostMut(at) => at as usize,
            Place::Device(at) => at.0 as usize,
        };
        if !matches!((from, to), (Place::Device(_), Place::Device(_))) {
            self.state().graphs.refuse_host(on)?;
        }
        self.push(on, Command::Copy { from: address(from), to: address(to), bytes })
    }

    unsafe fn clear(&self, on: Stream, at: Address, bytes: usize) -> Result<(), Fault> {
        self.push(on, Command::Clear { at, bytes })
    }

    unsafe fn launch(&self, on: Stream, launch: &Launch<'_>) -> Result<(), Fault> {
        let (entry, kernel) = self.kernel(launch)?;
        if kernel.words() != launch.words.len() {
            let text = format!("kernel {entry} takes {} words, not {}", kernel.words(), launch.words.len());
            return Err(fault(text));
        }
        self.check_reach(&entry, launch.words)?;
        let blocks = launch.blocks.max(1);
        let shared = launch.shared;
        self.push(on, Command::Kernel { kernel: entry, blocks, shared, words: launch.words.into() })
    }

    unsafe fn product(&self, on: Stream, product: &Product) -> Result<(), Fault> {
        product.check();
        if product.bias.is_some() && !product::adds_bias(product.shape) {
            return Err(fault(format!("no algorithm adds a bias to {:?}", product.shape)));
        }
        if let Some(algorithm) = product.algorithm {
            let operands = product.a.element;
            let result = product.c.element;
            self.workspace_of(
                algorithm,
                ProductKind { shape: product.shape, operands, result, bias: product.bias.is_some() },
            )?;
        }
        self.push(on, Command::Product(*product))
    }
}

/// Xorshift numbers.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 16) % bound as u64) as usize
    }
}
