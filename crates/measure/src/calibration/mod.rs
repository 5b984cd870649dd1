//! What a rank computes and what groups of ranks exchange, while all ranks of this machine or of several do the same.
//!
//! A [`CalibrationSpec`] says how to measure, [`CalibrationSpec::measure`] does so: products, attention, element-wise work in
//! and out of cache, an operation of the engine on tiny operands, and collectives of 4 KiB to 16 MiB in all groups at once, by
//! every algorithm. [`Measurements::cluster`] is what layouts are planned for: rates by shape as the native model counts work
//! ([`quadrille_cost::native`]), tiers fitted by the model's own formulas ([`Measurements::fitted`]), and every measurement
//! with its spread.

mod cases;
mod clock;
mod collectives;
mod device;
mod measurements;
mod operations;
mod ranks;
mod setup;
mod statistics;
mod tiers;

pub use cases::{Case, Sweep};
pub use measurements::{Measured, Measurements};
pub use setup::{CalibrationSpec, Setup};
pub use statistics::Runs;
pub use tiers::{Compared, Fitted};
