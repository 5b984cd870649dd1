//! The processes of a parallel program: for ranks that are processes, under `mpirun` or another launcher.

use std::error::Error;
use std::fmt::Display;
#[cfg(feature = "mpi")]
use std::sync::Arc;

use quadrille_spec::Nodes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::context::RankContext;
use crate::error::JobFailure;
#[cfg(feature = "mpi")]
use crate::error::{Aborted, Cause};
#[cfg(feature = "mpi")]
use crate::mpi::{self, Port};
use crate::run::JobOptions;

/// All processes that a launcher has started together, as one of them sees them. Without the feature `mpi` there is none:
/// [`initialize`](Self::initialize) says so.
///
/// ```no_run
/// # use quadrille_comm::{JobOptions, World, run_job};
/// let world = World::initialize()?;
/// let options = JobOptions { world: Some(world.clone()), ..JobOptions::new(world.size()) };
/// let work = || -> Result<(), Box<dyn std::error::Error>> {
///     let ranks = run_job(&options, |context| Ok(context.rank()))?;
///     if world.rank() == 0 {
///         println!("{ranks:?}");
///     }
///     Ok(world.finish()?)
/// };
/// if let Err(error) = work() {
///     if world.reports(&error) {
///         eprintln!("error: {error}");
///     }
///     world.abandon(1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct World {
    #[cfg(feature = "mpi")]
    port: Arc<Port>,
    #[cfg(not(feature = "mpi"))]
    none: std::convert::Infallible,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} of {})", self.rank(), self.size())
    }
}

/// Why processes cannot work together.
#[derive(Debug, Clone, Error)]
pub enum WorldError {
    /// This program has no MPI.
    #[error("this program was built without the feature `mpi`; build it with `--features mpi` where an MPI library is")]
    NotBuilt,
    /// The MPI library refused.
    #[error("MPI: {0}")]
    Library(String),
    /// The processes failed.
    #[error("{0}")]
    Failed(JobFailure),
}

#[cfg(feature = "mpi")]
impl World {
    /// Joins the processes that the launcher has started; a process that was started by itself is alone. All call this,
    /// from their main threads, once, before anything else. From then on ranks miss those that give no sign of life.
    ///
    /// # Errors
    /// The MPI library's.
    pub fn initialize() -> Result<Self, WorldError> {
        Ok(Self { port: mpi::open().map_err(WorldError::Library)? })
    }

    /// This process's rank, below [`size`](Self::size).
    pub fn rank(&self) -> usize {
        self.port.rank
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.port.size()
    }

    /// Which ranks share a node, as the MPI library says: those that can share memory.
    pub fn nodes(&self) -> &Nodes {
        &self.port.nodes
    }

    /// Every rank's host.
    pub fn hosts(&self) -> &[String] {
        &self.port.hosts
    }

    /// Waits for all processes and leaves MPI: at the end of a program that succeeded, on the thread that initialised.
    ///
    /// # Errors
    /// Another process failed meanwhile, or the MPI library's.
    pub fn finish(&self) -> Result<(), WorldError> {
        self.port.close().map_err(|error| match error {
            Ok(Aborted(failure)) => WorldError::Failed((*failure).clone()),
            Err(text) => WorldError::Library(text),
        })
    }

    /// After an error: whether this process is the one to print it. An error that is of this process alone, of no job, is
    /// told to the others. Waits for at most 0.3 s, for what others may have found at the same time.
    pub fn reports(&self, error: &dyn Display) -> bool {
        if self.port.alarm.failure().is_none() {
            let text = format!("rank {} on {}: {error}", self.rank(), self.hosts()[self.rank()]);
            self.port.announce(&Aborted(Arc::new(JobFailure::of_process(self.rank(), Cause::Told(text)))));
        }
        self.port.alarm.reports()
    }

    /// Ends this process after an error, once the others know of it: the one that [`reports`](Self::reports) first. A
    /// process that does not come here within 4.5 s of a failure, because it computes or hangs, is ended all the same.
    pub fn abandon(&self, code: i32) -> ! {
        if self.port.alarm.failure().is_none() {
            self.reports(&format_args!("ended with code {code}"));
        }
        self.port.alarm.exit(code)
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    pub(crate) fn run<R: Serialize + DeserializeOwned + Send>(
        &self,
        options: &JobOptions,
        body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
    ) -> Result<Vec<R>, JobFailure> {
        self.port.run(options, body)
    }
}

/// Without MPI there is no value of this type.
#[cfg(not(feature = "mpi"))]
impl World {
    /// Joins the processes that the launcher has started.
    ///
    /// # Errors
    /// Always: this program was built without the feature `mpi`.
    pub fn initialize() -> Result<Self, WorldError> {
        Err(WorldError::NotBuilt)
    }

    /// This process's rank, below [`size`](Self::size).
    pub fn rank(&self) -> usize {
        match self.none {}
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        match self.none {}
    }

    /// Which ranks share a node.
    pub fn nodes(&self) -> &Nodes {
        match self.none {}
    }

    /// Every rank's host.
    pub fn hosts(&self) -> &[String] {
        match self.none {}
    }

    /// Waits for all processes and leaves MPI.
    ///
    /// # Errors
    /// Another process failed meanwhile, or the MPI library's.
    pub fn finish(&self) -> Result<(), WorldError> {
        match self.none {}
    }

    /// After an error: whether this process is the one to print it.
    pub fn reports(&self, _error: &dyn Display) -> bool {
        match self.none {}
    }

    /// Ends this process after an error.
    pub fn abandon(&self, _code: i32) -> ! {
        match self.none {}
    }

    pub(crate) fn run<R: Serialize + DeserializeOwned + Send>(
        &self,
        _options: &JobOptions,
        _body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
    ) -> Result<Vec<R>, JobFailure> {
        match self.none {}
    }
}
