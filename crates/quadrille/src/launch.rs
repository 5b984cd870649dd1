//! How this process was started: by itself, with ranks as threads, or by `mpirun` or `srun` as one rank of many.

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use indicatif::ProgressDrawTarget;
use quadrille_comm::{JobOptions, Launched, World, run_job};
use quadrille_spec::{Algorithm, Choice, Cluster, Collectives};

use crate::arguments::{Arguments, Bench, Command, RunArguments};
use crate::failure::Failure;
use crate::settings::{self, Defaults};
use crate::validate::Validate;

/// How long processes wait for the first one to prepare files: nobody is late before.
const PREPARATION: Duration = Duration::from_secs(24 * 3600);

/// The processes of the job.
pub struct Launch {
    /// `None`: ranks are threads of this process.
    pub world: Option<World>,
}

/// Reads the command line. Of several processes only the first tells what is wrong with it.
pub fn arguments() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|error| refuse(&error))
}

/// Ends the process because of its command line; the first of several tells what is wrong.
fn refuse(error: &clap::Error) -> ! {
    match is_first() {
        true => error.exit(),
        false => leave(error.exit_code()),
    }
}

/// Ends a process that is not the first with the code of an error that the first one tells. The launcher ends all others as
/// soon as one has failed: the first is given time to speak.
pub fn leave(code: i32) -> ! {
    std::thread::sleep(Duration::from_millis(500));
    std::process::exit(code)
}

/// Whether this process is the first of those that a launcher has started, or was started by itself.
pub fn is_first() -> bool {
    Launched::from_environment().is_none_or(|launched| launched.rank == 0)
}

impl Launch {
    /// Ranks are threads.
    pub const THREADS: Self = Self { world: None };

    /// Joins the processes that a launcher has started.
    ///
    /// # Errors
    /// A command that runs in one process; a program without MPI; the MPI library's. To be told by the first process.
    pub fn of(command: &Command) -> Result<Self, Failure> {
        let Some(launched) = Launched::from_environment().filter(Launched::is_parallel) else {
            return Ok(Self::THREADS);
        };
        let (name, distributed) = nature(command);
        let how_many = launched.ranks.map_or("several".to_owned(), |ranks| ranks.to_string());
        if !distributed {
            return Err(Failure::usage(format!(
                "{name}: {} has started {how_many} processes, and this command runs in one; start it without {}",
                launched.by, launched.by
            )));
        }
        match quadrille_comm_mpi::initialize() {
            Ok(world) => Ok(Self { world: Some(world) }),
            Err(error) => Err(Failure::usage(format!(
                "{} has started {how_many} processes of {name}, which cannot work together: {error}",
                launched.by
            ))),
        }
    }

    /// Whether this process prints and writes files.
    pub fn is_first(&self) -> bool {
        self.world.as_ref().is_none_or(|world| world.rank() == 0)
    }

    /// Where progress is shown: to who watches the first process.
    pub fn progress(&self) -> ProgressDrawTarget {
        if self.is_first() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
    }

    /// What a layout has where nobody says otherwise: all processes, on the nodes where they run.
    ///
    /// # Errors
    /// Nodes that hold different numbers of ranks, or not consecutive ones: layouts cannot say that.
    pub fn defaults(&self, usual: &Defaults) -> Result<Defaults, Failure> {
        let Some(world) = &self.world else { return Ok(*usual) };
        let nodes = world.nodes();
        let Some(per_node) = nodes.per_node() else {
            let of_rank: Vec<usize> = (0..nodes.ranks()).map(|rank| nodes.node(rank)).collect();
            return Err(Failure::usage(format!(
                "the launcher put the ranks on nodes {of_rank:?}: a layout needs equally many consecutive ranks on every \
                 node; start them so, e.g. with mpirun --map-by ppr:N:node for N on each"
            )));
        };
        Ok(Defaults { ranks: world.size(), per_node: Some(per_node), ..*usual })
    }

    /// Refuses a layout that has another number of ranks than there are processes.
    pub fn check_ranks(&self, ranks: usize) -> Result<(), Failure> {
        match &self.world {
            Some(world) if world.size() != ranks => Err(Failure::usage(format!(
                "the layout has {ranks} ranks and {} processes were started; start {ranks}, or change the grid",
                world.size()
            ))),
            _ => Ok(()),
        }
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
        let share = settings::processors() / self.ranks_here(ranks);
        let own = if self.world.is_some() { settings::cores() } else { settings::cores() / ranks.max(1) };
        share.min(own).max(1)
    }

    /// Whether the ranks that share this machine, of so many threads each, have fewer cores than threads.
    pub fn is_crowded(&self, ranks: usize, threads: usize) -> bool {
        self.ranks_here(ranks) * threads > settings::processors()
    }

    /// By which algorithms collectives run: `auto` means shared memory between threads, else the fastest by the cluster's
    /// tiers; a ring where it has none.
    pub fn collectives(&self, arguments: &RunArguments, cluster: &Cluster) -> Choice {
        match (arguments.collectives, &self.world) {
            (Collectives::Always(algorithm), _) => Choice::Always(algorithm),
            (Collectives::Auto, None) => Choice::Always(Algorithm::Native),
            (Collectives::Auto, Some(_)) => Choice::Fastest(cluster.tiers.clone()),
        }
    }

    /// Waits until all processes are here: for work of one that the others must not take for a fault.
    ///
    /// # Errors
    /// Another process's.
    pub fn meet(&self) -> Result<(), Failure> {
        let Some(world) = &self.world else { return Ok(()) };
        let options = JobOptions { world: Some(world.clone()), timeout: PREPARATION, ..JobOptions::new(world.size()) };
        let met = run_job(&options, |_| Ok::<(), Box<dyn Error + Send + Sync>>(()));
        met.map(|_| ()).map_err(|failure| Failure::Run(failure.into()))
    }

    /// Does in the first process what leaves files behind, then in the others, which find them.
    ///
    /// # Errors
    /// The preparation's; another process's.
    pub fn first_then_others<R>(&self, prepare: impl Fn() -> Result<R, Failure>) -> Result<R, Failure> {
        let first = self.is_first().then(&prepare).transpose()?;
        self.meet()?;
        first.map_or_else(prepare, Ok)
    }

    /// Ends the process: the failure is printed by the rank that found it first, all end with its code.
    pub fn end(self, result: Result<(), Failure>) -> u8 {
        let Some(world) = self.world else { return report(result) };
        let finished = || world.clone().finish().map_err(|error| Failure::run(error.to_string()));
        // A run that was stopped has ended in good order on all ranks.
        let result = match result {
            Err(Failure::Stopped(stopped)) => finished().and(Err(Failure::Stopped(stopped))),
            result => result.and_then(|()| finished()),
        };
        match result {
            Ok(()) => 0,
            Err(failure @ Failure::Stopped(_)) => {
                if world.rank() == 0 {
                    failure.report();
                }
                failure.exit_code()
            }
            Err(failure) => {
                if world.reports(&failure.message()) {
                    failure.report();
                }
                world.abandon(i32::from(failure.exit_code()))
            }
        }
    }
}

/// A command's name, and whether its ranks may be processes.
fn nature(command: &Command) -> (&'static str, bool) {
    match command {
        Command::Train(_) => ("train", true),
        Command::Verify(_) => ("verify", true),
        Command::Eval(_) => ("eval", true),
        Command::Generate(_) => ("generate", true),
        Command::Report(_) => ("report", false),
        Command::Memorize(_) => ("memorize", true),
        Command::Explain(_) => ("explain", false),
        Command::Plan(_) => ("plan", false),
        Command::Sweep(_) => ("sweep", false),
        Command::Estimate(_) => ("estimate", false),
        Command::Reproduce(_) => ("reproduce", false),
        Command::Export(_) => ("export", false),
        Command::Convert(_) => ("convert", false),
        Command::Bench(arguments) => match arguments.bench {
            Bench::Collectives(_) => ("bench collectives", true),
            _ => ("this bench", false),
        },
        Command::Calibrate(_) => ("calibrate", true),
        Command::Checkpoint(_) => ("checkpoint", false),
        Command::Data(_) => ("data", false),
        Command::Completions(_) => ("completions", false),
        Command::Man(_) => ("man", false),
        Command::Validate(arguments) => match arguments.validate {
            Validate::Published(_) => ("validate published", false),
            Validate::Local(_) => ("validate local", true),
        },
    }
}

/// Prints a failure; the exit code.
pub fn report(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}
