//! A device: what it is to programs, its kernels, and an emulated one that runs the same kernels.
//!
//! [`Driver`] is all that is asked of a device. [`Gpu`] is one by NVIDIA's libraries, which are opened at run time: the
//! build needs none of them. `Emulator` (feature `emulator`) is one by the C++ compiler, for tests. Above them
//! everything is the same code: [`Queue`] has a method for each kernel.
//!
//! Kernels are CUDA C++ (`kernels/*.cu`), a file for each module of `quadrille_tensor`, whose arithmetic they follow sum
//! by sum. They have no atomics; every sum has an order that shapes alone fix.

mod algorithms;
mod array;
mod backend;
mod cache;
mod driver;
#[cfg(emulated)]
mod emulator;
mod gpu;
mod graph;
mod memory;
pub mod nccl;
mod ops;
mod queue;
mod sources;
mod words;

pub use array::{Array, Element, Format, Number};
pub use backend::{
    Cuda, DeviceAngles, DeviceBuffer, DeviceIndices, DeviceKind, DeviceMover, DeviceSamples, DeviceView, DeviceViewMut,
    Lanes, choose, emulate_by, have_rank, keep_apart,
};
pub use driver::{
    ALIGNED, Address, Algorithm, Candidate, Driver, Event, Facts, Fault, Launch, Memory, Place, Product, ProductKind,
    Stream, THREADS,
};
#[cfg(emulated)]
pub use emulator::{Emulator, GraphTally, GraphTrouble, Tally, Trouble};
pub use gpu::{Compiled, Gpu, compile};
pub use graph::{Graph, Graphs, Node};
pub use ops::*;
pub use queue::{Done, Queue};
pub use sources::{HEADERS, SOURCES, Source};
