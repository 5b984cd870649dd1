//! The native model held against runs that others have published: how far a price may be trusted.
//!
//! A [`Row`] of a CSV file becomes a [`Run`]: a model, a cluster, a framework, a layout, and what was measured of it, in
//! seconds of a step, bytes of a device, or as a run out of memory. [`evaluate`] prices every run; [`Summary`] compares.
//! Rows that cannot be predicted are counted by their reason ([`Unmapped`]).
//!
//! ```
//! use quadrille_evidence::{BUILT_IN, evaluate, read};
//!
//! // The first table: GPT of 1.7 to 1008 billion parameters by Megatron-LM on Selene.
//! let rows = read(BUILT_IN)?;
//! let evaluation = evaluate(&rows[..10])?;
//! for entry in &evaluation.entries {
//!     let pair = entry.pair().expect("none ran out of memory");
//!     assert!(pair.error().abs() < 0.2, "{}: {pair:?}", entry.row.sizes.global_batch.unwrap_or(0));
//! }
//! # assert!(!evaluation.entries.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`fit`] fits the efficiencies of devices and networks on the rows, on all of them or without those of a source; a [`Band`] says
//! how far runs like a planned one were from what was predicted of them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod band;
mod convention;
mod error;
mod evaluate;
pub mod fit;
mod kind;
mod layout;
mod machine;
mod model;
mod oversized;
mod reserve;
mod row;
mod run;
mod sources;
mod summary;
mod unmapped;

pub use band::{Band, Known, Likeness};
pub use convention::Convention;
pub use error::CsvError;
pub use evaluate::{Entry, Evaluation, evaluate};
pub use kind::MissingRuns;
pub use oversized::Oversized;
pub use reserve::{Distribution, Judged};
pub use row::{Metric, Recomputed, Row, Sizes, read};
pub use run::{Measured, Run};
pub use sources::{Reading, SOURCES, Source};
pub use summary::{Fits, Fitted, Group, Order, Ranking, Summary, Times};
pub use unmapped::Unmapped;

/// The runs that come with the program; their sources are in `data/README.md`.
pub const BUILT_IN: &str = include_str!("../data/runs.csv");
