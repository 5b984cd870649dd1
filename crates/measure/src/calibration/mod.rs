//! What a rank computes and what groups of ranks exchange, while all ranks of this machine or of several do the same, on its processor
//! or on devices.
//!
//! A [`CalibrationSpec`] says how to measure, [`CalibrationSpec::measure`] does so: products, attention, element-wise work in
//! and out of cache, an operation of the engine on tiny operands, on a device copies from and to the host, and collectives in all
//! groups at once, by every algorithm. All of it is the engine's own work ([`quadrille_engine::Work`]), of [`Sizes`] that fit what ranks
//! compute on. [`Measurements::cluster`] is what layouts are planned for: rates by shape as the native model counts work
//! ([`quadrille_cost::native`]), tiers fitted by the model's own formulas ([`Measurements::fitted`]), and every measurement
//! with its spread.

mod cases;
mod clock;
mod device;
mod measurements;
mod ranks;
mod setup;
mod sizes;
mod statistics;
mod tiers;

pub use cases::Case;
pub use measurements::{Measured, Measurements};
pub use setup::{CalibrationSpec, OnDevice, Setup};
pub use sizes::{AttentionSizes, Sizes};
pub use statistics::Runs;
pub use tiers::{Compared, Fitted};
