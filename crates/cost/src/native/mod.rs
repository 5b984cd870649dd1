//! The native model: what a step of any layout costs on a described cluster, in closed form.
//!
//! It speaks of the same operations and collectives as the step program and is held against it: volumes, FLOPs and
//! swept elements equal the program's ledger as integers. A [`Block`] price depends on few sizes and is reused; a
//! [`Price`] combines it with the pipeline, the data axis and the switches.

mod candidate;
mod framework;
mod operations;
mod parameters;
mod price;
mod problem;
mod stages;
mod volumes;

pub use candidate::Candidate;
pub use framework::{AttentionKernel, Framework, Hiding, StateBytes};
pub use price::{Memory, Parts, Price};
pub use problem::{Block, Problem};
pub use volumes::{Volume, Volumes};
