//! The processes of a parallel program: for ranks that are processes, under `mpirun` or another launcher.

use std::error::Error;
use std::fmt::{self, Display};
use std::sync::Arc;

use quadrille_spec::Nodes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::context::RankContext;
use crate::error::{Cause, JobFailure};
use crate::run::JobOptions;

/// What a rank does in a job; its result as bytes.
pub type Body<'a> = &'a (dyn Fn(&RankContext) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> + Sync);

/// All processes that a launcher has started together, as one of them sees them: what a crate for a transport between
/// processes makes a [`World`] of.
pub trait Peers: Send + Sync {
    /// See [`World::rank`].
    fn rank(&self) -> usize;

    /// See [`World::nodes`].
    fn nodes(&self) -> &Nodes;

    /// See [`World::hosts`].
    fn hosts(&self) -> &[String];

    /// See [`World::finish`].
    ///
    /// # Errors
    /// As there.
    fn finish(&self) -> Result<(), WorldError>;

    /// See [`World::reports`].
    fn reports(&self, error: &dyn Display) -> bool;

    /// See [`World::abandon`].
    fn abandon(&self, code: i32) -> !;

    /// Runs the body as this process's rank; what all ranks returned, in every process.
    ///
    /// # Errors
    /// As [`run_job`](crate::run_job).
    fn run(&self, options: &JobOptions, body: Body<'_>) -> Result<Vec<Vec<u8>>, JobFailure>;
}

/// All processes that a launcher has started together, as one of them sees them. Crates for transports between processes
/// make it.
#[derive(Clone)]
pub struct World(Arc<dyn Peers>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({} of {})", self.rank(), self.size())
    }
}

/// Why processes could not end together.
#[derive(Debug, Clone, Error)]
pub enum WorldError {
    /// What carries data between them refused.
    #[error("{0}")]
    Transport(String),
    /// The processes failed.
    #[error("{0}")]
    Failed(JobFailure),
}

impl World {
    /// Of these processes.
    pub fn new(processes: Arc<dyn Peers>) -> Self {
        Self(processes)
    }

    /// This process's rank, below [`size`](Self::size).
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.0.hosts().len()
    }

    /// Which ranks share a node: those that can share memory.
    pub fn nodes(&self) -> &Nodes {
        self.0.nodes()
    }

    /// Every rank's host.
    pub fn hosts(&self) -> &[String] {
        self.0.hosts()
    }

    /// Waits for all processes and leaves them: at the end of a program that succeeded, on its main thread.
    ///
    /// # Errors
    /// Another process failed meanwhile, or the transport's.
    pub fn finish(&self) -> Result<(), WorldError> {
        self.0.finish()
    }

    /// After an error: whether this process is the one to print it. An error that is of this process alone, of no job, is
    /// told to the others. Waits for a fraction of a second, for what others may have found at the same time.
    pub fn reports(&self, error: &dyn Display) -> bool {
        self.0.reports(error)
    }

    /// Ends this process after an error, once the others know of it: the one that [`reports`](Self::reports) first. A
    /// process that does not come here within seconds of a failure, because it computes or hangs, is ended all the same.
    pub fn abandon(&self, code: i32) -> ! {
        self.0.abandon(code)
    }

    pub(crate) fn run<R: Serialize + DeserializeOwned>(
        &self,
        options: &JobOptions,
        body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
    ) -> Result<Vec<R>, JobFailure> {
        let all = self.0.run(options, &|context| {
            let written = postcard::to_stdvec(&body(context)?);
            written.map_err(|error| format!("the rank's result could not be written: {error}").into())
        })?;
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            postcard::from_bytes(bytes).map_err(|error| {
                let text = format!("a rank's result could not be read: {error}");
                JobFailure::of_process(rank, Cause::Error(Arc::from(Box::from(text))))
            })
        };
        all.iter().enumerate().map(read).collect()
    }
}
