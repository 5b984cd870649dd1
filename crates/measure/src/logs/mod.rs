//! Collectives that others have measured, read into a cluster that is otherwise kept.
//!
//! [`nccl_tests`] and [`osu`] read what these tools print; [`Log::place`] says where the ranks of a log lie, and [`refit`] fits
//! the tiers of a cluster that the ranks span.
//!
//! ```
//! use std::path::Path;
//!
//! use quadrille_measure::logs::{self, Job};
//! use quadrille_spec::Cluster;
//!
//! let text = "# OSU MPI Allreduce Latency Test v7.4\n4 12.0\n65536 40.0\n4194304 700.0\n";
//! let log = logs::osu(Path::new("all_reduce.log"), text)?;
//! let mut cluster = Cluster::preset("dgx-a100")?;
//! let job = Job { ranks: Some(8), per_node: None };
//! let placed = log.place("all_reduce.log".to_owned(), job, cluster.tiers.len())?;
//! let refits = logs::refit(&mut cluster, &[placed])?;
//! // The tier inside a node now takes about what was measured.
//! assert!(refits[0].error.mean < refits[0].error_before.mean);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod log;
mod nccl_tests;
mod osu;
mod refit;

pub use log::{Job, Log, Placed, Row};
pub use nccl_tests::parse as nccl_tests;
pub use osu::parse as osu;
pub use refit::{Refit, refit};
