//! Measures this machine and this program.
//!
//! [`calibration`] measures what a rank computes and what groups of ranks exchange, and makes of it the cluster for which
//! layouts are planned; [`logs`] and [`step_fit`] read into a cluster what others have measured. [`constants`] are the few
//! numbers of a simulated machine. [`local`] holds predicted against measured steps.

pub mod calibration;
pub mod collectives;
pub mod constants;
mod error;
pub mod local;
pub mod logs;
mod memory;
mod progress;
mod refusal;
pub mod step_fit;
mod steps;
mod timing;

pub use error::{Blame, MeasureError};
pub use progress::{OnProgress, Progress};
pub use refusal::{Named, Refusal};
