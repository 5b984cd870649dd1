//! The native model: what a step of any layout costs on a described cluster.
//!
//! [`Problem::price_layout`] is the price: of the step program that the framework runs, this program's engine or another one.
//! What a [`Framework`] does otherwise is in its programs ([`quadrille_step::Practice`]) and in a table of costs. [`Bounds`]
//! are below the price of programs and tell a search which of them to build.

mod beside;
mod bounds;
mod candidate;
mod costs;
mod fit;
mod framework;
mod machine;
mod measured;
mod memory;
mod narrow;
mod network;
mod planned;
mod practiced;
mod price;
mod problem;
mod program;
mod rank_group;
mod rates;

pub use beside::normal_below;
pub use bounds::{Bounds, Learned, Pieces};
pub use candidate::{Candidate, common_divisor, inside, inside_by};
pub use fit::{Deviation, Sample, fit_tier};
pub use framework::{AttentionKernel, Eager, Framework, Hiding, StateBytes};
pub use machine::NativeMachine;
pub use measured::{attention_flops, product_flops, sweep_flops};
pub use narrow::{Moments, NarrowFormat, Numbers};
pub use price::{Memory, Parts, Price};
pub use problem::Problem;
pub use program::PriceError;
pub use rank_group::RankGroup;
