//! Ranks as processes, over MPI: a [`World`] for `quadrille_comm`'s jobs.
//!
//! ```no_run
//! use quadrille_comm::{JobOptions, run_job};
//!
//! let world = quadrille_comm_mpi::initialize()?;
//! let options = JobOptions { world: Some(world.clone()), ..JobOptions::new(world.size()) };
//! let work = || -> Result<(), Box<dyn std::error::Error>> {
//!     let ranks = run_job(&options, |context| Ok(context.rank()))?;
//!     if world.rank() == 0 {
//!         println!("{ranks:?}");
//!     }
//!     Ok(world.finish()?)
//! };
//! if let Err(error) = work() {
//!     if world.reports(&error) {
//!         eprintln!("error: {error}");
//!     }
//!     world.abandon(1);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The transport needs an MPI library at build time and is the feature `mpi`. This is the only crate that knows of the
//! feature: without it [`initialize`] says so.

#[cfg(feature = "mpi")]
mod mpi;

use quadrille_comm::World;
use thiserror::Error;

/// Why processes cannot work together.
#[derive(Debug, Clone, Error)]
pub enum InitializeError {
    /// This program has no MPI.
    #[error("this program was built without the feature `mpi`; build it with `--features mpi` where an MPI library is")]
    NotBuilt,
    /// The MPI library refused.
    #[error("MPI: {0}")]
    Library(String),
}

/// Joins the processes that the launcher has started; a process that was started by itself is alone. All call this, from
/// their main threads, once, before anything else. From then on ranks miss those that give no sign of life.
///
/// # Errors
/// The MPI library's, or that this program was built without one.
pub fn initialize() -> Result<World, InitializeError> {
    #[cfg(feature = "mpi")]
    return mpi::open().map_err(InitializeError::Library);
    #[cfg(not(feature = "mpi"))]
    Err(InitializeError::NotBuilt)
}
