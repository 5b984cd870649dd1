//! Measures this machine and this program, for a command line and for other programs: nothing here prints, reads flags or
//! ends the process.
//!
//! - [`calibration`]: what a rank computes and what groups of ranks exchange, and the cluster that this makes, for which
//!   layouts are planned. [`logs`] and [`step_fit`] read into a cluster what others have measured, [`ImportSpec`] their files.
//! - [`local`]: steps of many layouts, predicted and measured.
//! - Benches beside yardsticks of the same run: [`collectives`] beside a copy, the products of a step ([`gemm`]) and a whole
//!   [`step`] beside the matrix library, states that move ([`optimizer`]) beside a plain copy, schedules ([`pipeline`]) beside the time without bubble, a simulated step
//!   ([`simulation`], with its [`constants`]) beside the measured one; [`searches`] beside published planners.
//!
//! ```
//! use quadrille_measure::collectives::{Cases, CollectivesSpec, Runs};
//!
//! // Buffers of 64 KiB on two ranks, which are threads.
//! let spec = CollectivesSpec { runs: Runs::Exactly(3), ..CollectivesSpec::new(vec![2], vec![64 << 10]) };
//! let measured = Cases::new(&spec)?.measure(&mut |_| ())?;
//! // All-reduce, all-gather and reduce-scatter, by shared memory, ring and recursive doubling.
//! assert_eq!(measured.len(), 9);
//! assert!(measured.iter().all(|row| row.seconds > 0.0 && row.bytes == 65_536));
//! # Ok::<(), quadrille_measure::MeasureError>(())
//! ```
//!
//! Ranks are threads of this process, or processes where a description has a [`quadrille_comm::World`]: then each of them
//! measures the same and gets the same results. What takes long tells a callback how far it is ([`Progress`]). Errors are
//! [`MeasureError`]s, which know what is at fault ([`MeasureError::blame`]); a [`Refusal`] of what was asked for knows what it
//! names, so that a command line can call that by its flags ([`Refusal::spelled`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod calibration;
pub mod collectives;
pub mod constants;
mod error;
pub mod gemm;
mod import;
pub mod local;
pub mod logs;
pub mod optimizer;
pub mod pipeline;
mod progress;
mod refusal;
pub mod searches;
pub mod simulation;
pub mod step;
pub mod step_fit;
mod timing;

pub use error::MeasureError;
pub use import::{ImportSpec, Imported};
pub use progress::{OnProgress, Progress};
pub use refusal::{Refusal, Setting};
