//! How this process was started: by itself, with ranks as threads, or by `mpirun` or `srun` as one rank of many.

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::ops::Deref;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ColorChoice, CommandFactory, FromArgMatches};
use indicatif::ProgressDrawTarget;
use quadrille_comm::Launched;
use quadrille_run::Processes;

use crate::arguments::{Arguments, Command};
use crate::bench::arguments::Bench;
use crate::device::Named;
use crate::failure::Failure;
use crate::terminal::OutputArguments;
use crate::validate::Validate;
use crate::{output, paths, terminal};

/// The processes of the job, as they were started.
pub struct Launch {
    processes: Processes,
}

impl Deref for Launch {
    type Target = Processes;

    fn deref(&self) -> &Processes {
        &self.processes
    }
}

/// Reads the command line of this process. Of several processes only the first tells what is wrong with it.
pub fn arguments() -> Arguments {
    let words: Vec<OsString> = std::env::args_os().collect();
    read(&words).unwrap_or_else(|error| {
        terminal::set(OutputArguments { color: color(&words), verbose: false, quiet: false });
        refuse(&error)
    })
}

/// What the words say of colours.
fn color(words: &[OsString]) -> ColorChoice {
    terminal::color(words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()))
}

/// Reads the words of a command line, the program's name first.
///
/// # Errors
/// What no command takes.
pub fn read(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command().color(color(words));
    let read = command.try_get_matches_from_mut(words).and_then(|mut matches| {
        paths::check_named(&command, &matches)?;
        Arguments::from_arg_matches_mut(&mut matches)
    });
    read.map_err(|error| error.with_cmd(&command))
}

/// Ends the process because of its command line; the first of several tells what is wrong.
fn refuse(error: &clap::Error) -> ! {
    if !is_first() {
        leave(error.exit_code());
    }
    // Help is laid out by who made it.
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help {
        let printed = error.print().and_then(|()| stdout().flush());
        // Help that was asked for is the output.
        let printed = if error.use_stderr() { Ok(()) } else { output::printed(printed) };
        std::process::exit(printed.map_or_else(|failure| report(Err(failure)).into(), |()| error.exit_code()))
    }
    output::refused(&error.to_string());
    std::process::exit(error.exit_code())
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
    pub const THREADS: Self = Self { processes: Processes::THREADS };

    /// Joins the processes that a launcher has started.
    ///
    /// # Errors
    /// A command that runs in one process; a program without MPI; the MPI library's. To be told by the first process.
    pub fn of(command: &Command) -> Result<Self, Failure> {
        let named = device(command);
        let Some(launched) = Launched::from_environment().filter(Launched::is_parallel) else {
            return Ok(Self { processes: Processes { device: named.device(), ..Processes::THREADS } });
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
            Ok(world) => {
                if named != Named::Cpu {
                    quadrille_cuda::have_rank(world.rank(), world.size());
                }
                Ok(Self { processes: Processes { world: Some(world), device: named.device() } })
            }
            Err(error) => Err(Failure::usage(format!(
                "{} has started {how_many} processes of {name}, which cannot work together: {error}",
                launched.by
            ))),
        }
    }

    /// Where ranks live.
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Where progress is shown: to who watches the first process.
    pub fn progress(&self) -> ProgressDrawTarget {
        if self.is_first() { terminal::progress() } else { ProgressDrawTarget::hidden() }
    }

    /// Ends the process: the failure is printed by the rank that found it first, all end with its code.
    pub fn end(self, result: Result<(), Failure>) -> u8 {
        let Some(world) = self.processes.world else { return report(result) };
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

/// What a command's ranks compute on.
fn device(command: &Command) -> Named {
    match command {
        Command::Train(arguments) => arguments.device.device,
        Command::Verify(arguments) => arguments.device.device,
        Command::Eval(arguments) => arguments.weights.device.device,
        Command::Generate(arguments) => arguments.weights.device.device,
        Command::Bench(arguments) => match &arguments.bench {
            Bench::Step(arguments) => arguments.device.device,
            _ => Named::Cpu,
        },
        Command::Calibrate(arguments) => arguments.device.device,
        Command::Validate(arguments) => match &arguments.validate {
            Validate::Local(arguments) => arguments.device.device,
            Validate::Published(_) => Named::Cpu,
        },
        _ => Named::Cpu,
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
        Command::Serve(_) => ("serve", false),
        Command::Paper(_) => ("paper", false),
        Command::Export(_) => ("export", false),
        Command::Convert(_) => ("convert", false),
        Command::Bench(arguments) => match arguments.bench {
            Bench::Collectives(_) => ("bench collectives", true),
            _ => ("this bench", false),
        },
        Command::Calibrate(_) => ("calibrate", true),
        Command::Prune(_) => ("prune", false),
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
