//! Where ranks live: threads of this process, or processes that a launcher has started; and what they compute on.

use std::error::Error;
use std::thread::available_parallelism;
use std::time::Duration;

use quadrille_comm::{JobOptions, World, run_job};
use quadrille_engine::{Device, EngineError, Processor};
use quadrille_spec::{Algorithm, Choice, Collectives, Tier};

use crate::refusal::{Refusal, Setting};
use crate::{LayoutDefaults, RunError};

/// How long processes wait for the first one to prepare files: nobody is late before.
const PREPARATION: Duration = Duration::from_secs(24 * 3600);
/// More threads than this are of no use to a rank.
const MOST_THREADS: usize = 1024;

/// The processes of a job.
#[derive(Clone)]
pub struct Processes {
    /// `None`: ranks are threads of this process.
    pub world: Option<World>,
    /// What ranks compute on.
    pub device: &'static dyn Device,
}

impl Default for Processes {
    fn default() -> Self {
        Self::THREADS
    }
}

impl Processes {
    /// Ranks are threads of this process, and compute on the processor.
    pub const THREADS: Self = Self { world: None, device: &Processor };

    /// Whether this process prints and writes files.
    pub fn is_first(&self) -> bool {
        self.world.as_ref().is_none_or(|world| world.rank() == 0)
    }

    /// Refuses a layout that has another number of ranks than there are processes.
    ///
    /// # Errors
    /// One that names both.
    pub fn check_ranks(&self, ranks: usize) -> Result<(), Refusal> {
        match &self.world {
            Some(world) if world.size() != ranks => Err(Refusal::new(format!(
                "the layout has {ranks} ranks and {} processes were started; start {ranks}, or change the grid",
                world.size()
            ))),
            _ => Ok(()),
        }
    }

    /// What a layout has where nobody says otherwise: all processes, on the nodes where they run, what their device wants, and
    /// `usual`.
    ///
    /// # Errors
    /// Nodes that hold different numbers of ranks, or not consecutive ones: layouts cannot say that.
    pub fn defaults(&self, usual: &LayoutDefaults) -> Result<LayoutDefaults, Refusal> {
        let usual = LayoutDefaults { vocab_multiple: self.device.vocab_multiple(), ..*usual };
        let Some(world) = &self.world else { return Ok(usual) };
        let nodes = world.nodes();
        let Some(per_node) = nodes.per_node() else {
            let of_rank: Vec<usize> = (0..nodes.ranks()).map(|rank| nodes.node(rank)).collect();
            return Err(Refusal::new(format!(
                "the launcher put the ranks on nodes {of_rank:?}: a layout needs equally many consecutive ranks on every \
                 node; start them so, e.g. with `mpirun.map_by` ppr:N:node for N on each"
            )));
        };
        Ok(LayoutDefaults { ranks: world.size(), per_node: Some(per_node), ..usual })
    }

    /// How many of these ranks share this machine's cores and memory.
    pub fn ranks_here(&self, ranks: usize) -> usize {
        self.world.as_ref().map_or(ranks, |world| {
            let nodes = world.nodes();
            (0..nodes.ranks()).filter(|rank| nodes.node(*rank) == nodes.node(world.rank())).count()
        })
    }

    /// Cores for each of the ranks that share this machine, at least 1: where ranks are processes no more than the launcher
    /// lets this one use, which may be all of them or its own.
    pub fn cores_each(&self, ranks: usize) -> usize {
        let share = processors() / self.ranks_here(ranks);
        let own = if self.world.is_some() { cores() } else { cores() / ranks.max(1) };
        share.min(own).max(1)
    }

    /// Whether the ranks that share this machine, of so many threads each, have fewer cores than threads.
    pub fn is_crowded(&self, ranks: usize, threads: usize) -> bool {
        self.ranks_here(ranks) * threads > processors()
    }

    /// Threads of each of so many ranks: as many as are asked for, else [`Self::cores_each`].
    ///
    /// # Errors
    /// None at all, or too many.
    pub fn threads(&self, asked: Option<usize>, ranks: usize) -> Result<usize, Refusal> {
        let refused = |rule: String| Err(Refusal::of(Setting::Threads).text(rule));
        match asked {
            Some(0) => refused(" 0: a rank has at least one thread".to_owned()),
            Some(threads) if threads > MOST_THREADS => {
                refused(format!(" {threads}: a rank has at most {MOST_THREADS} threads"))
            }
            Some(threads) => Ok(threads),
            None => Ok(self.cores_each(ranks)),
        }
    }

    /// By which algorithms collectives run: `auto` means shared memory between threads, else the fastest by the cluster's
    /// tiers; a ring where it has none.
    pub fn collectives(&self, asked: Collectives, tiers: &[Tier]) -> Choice {
        match (asked, &self.world) {
            (Collectives::Always(algorithm), _) => Choice::Always(algorithm),
            (Collectives::Auto, None) => Choice::Always(Algorithm::Native),
            (Collectives::Auto, Some(_)) => Choice::Fastest(tiers.to_vec()),
        }
    }

    /// Waits until all processes are here: for work of one that the others must not take for a fault.
    ///
    /// # Errors
    /// Another process's.
    pub fn meet(&self) -> Result<(), RunError> {
        let Some(world) = &self.world else { return Ok(()) };
        let options = JobOptions { world: Some(world.clone()), timeout: PREPARATION, ..JobOptions::new(world.size()) };
        let met = run_job(&options, |_| Ok::<(), Box<dyn Error + Send + Sync>>(()));
        met.map(|_| ()).map_err(|failure| EngineError::from(failure).into())
    }

    /// Does in the first process what leaves files behind, then in the others, which find them.
    ///
    /// # Errors
    /// The preparation's; another process's.
    pub fn first_then_others<R, E: From<RunError>>(&self, prepare: impl Fn() -> Result<R, E>) -> Result<R, E> {
        let first = self.is_first().then(&prepare).transpose()?;
        self.meet()?;
        first.map_or_else(prepare, Ok)
    }
}

/// The time that a number of seconds is, after which a collective that waits for a rank stops the job.
///
/// # Errors
/// One that is not positive, or longer than a clock counts.
pub fn timeout(seconds: f64) -> Result<Duration, Refusal> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        _ => Err(Refusal::of(Setting::Timeout).text(format!(" {seconds}: give a positive number of seconds"))),
    }
}

/// Logical processors that this process may use.
pub fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Processors of this machine, also those that this process may not use.
pub fn processors() -> usize {
    quadrille_comm::processors().unwrap_or_else(cores)
}
