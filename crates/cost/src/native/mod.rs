//! The native model: what a step of any layout costs on a described cluster.
//!
//! [`Problem::price_layout`] is the price: of this program's engine that of the step program, of other frameworks a closed
//! form. [`Bounds`] are below the price of programs and tell a search which of them to build.
//!
//! The closed form speaks of the same operations and collectives as the step program and is held against it: volumes, FLOPs
//! and swept elements equal the program's ledger as integers. A [`Block`] price depends on few sizes and is reused; a
//! [`Price`] combines it with the pipeline, the data axis and the switches.

mod block;
mod bounds;
mod candidate;
mod cost;
mod fit;
mod footprint;
mod framework;
mod holdings;
mod links;
mod machine;
mod makeup;
mod measured;
mod meter;
mod meter_panels;
mod network;
mod operations;
mod parameters;
mod pipeline;
mod price;
mod problem;
mod program;
mod put_off;
mod rank_group;
mod rates;
mod residence;
mod stages;
mod step;
mod update;
mod volumes;

pub use block::Block;
pub use bounds::{Bounds, Pieces};
pub use candidate::{Candidate, inside};
pub use fit::{Deviation, Sample, fit_tier};
pub use framework::{AttentionKernel, Eager, Framework, Hiding, StateBytes};
pub use machine::NativeMachine;
pub use measured::{attention_flops, product_flops, sweep_flops};
pub use price::{Memory, Parts, Price};
pub use problem::Problem;
pub use program::PriceError;
pub use rank_group::RankGroup;
pub use volumes::{Volume, Volumes};
