//! The command line of Quadrille: `train`, `eval`, `generate`, `memorize`, `verify`, `report`, `explain`, `plan`,
//! `sweep`, `serve`, `paper`, `export`, `convert`, `calibrate`, `validate`, `data`, `bench`, `checkpoint`,
//! `prune`, `completions`, `man`.
//!
//! [`main`] is the program. A package of another language asks in the same words and gets documents and messages in place of
//! what would be printed: [`document`] and [`train`]. [`flags`] says which words there are.
//!
//! ```
//! let words = ["explain", "--model", "gpt-tiny", "--grid", "x=2"].map(str::to_owned);
//! let explained = quadrille_cli::command_line::document(&words).map_err(|failure| failure.message())?;
//! assert_eq!(explained["stages"].as_array().map(Vec::len), Some(2)); // of two ranks
//! # Ok::<(), String>(())
//! ```

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Arg, ArgAction, CommandFactory};
use quadrille_plan::native::Cancel;
use quadrille_run::OnEvent;
use quadrille_run::units::seconds;
use serde_json::Value;

use crate::arguments::{Arguments, Command};
use crate::launch::{self, Launch};
use crate::validate::Validate;
use crate::{
    bench, calibrate, checkpoint_command, convert, data_command, evaluate, explain, export, generate, memorize, output,
    paper, plan, prune, report, serve, shell, sweep, terminal, train as training, validate, verify,
};

pub use crate::failure::{Failure, Stopped};

/// Reads the command line of this process, does what it asks for and prints what it finds. Exit codes: 0 success, 1 a failed run
/// or proof, 2 input that cannot be used.
pub fn main() -> ExitCode {
    quadrille_files::allow_open_files();
    let Arguments { command, output: said } = launch::arguments();
    terminal::set(said);
    let begun = Instant::now();
    ExitCode::from(match Launch::of(&command) {
        Ok(launch) => {
            let result = run(command, &launch);
            if launch.is_first() {
                output::detail(&format!("took {}", seconds(begun.elapsed().as_secs_f64())));
            }
            launch.end(result)
        }
        Err(failure) if launch::is_first() => launch::report(Err(failure)),
        Err(failure) => launch::leave(failure.exit_code().into()),
    })
}

/// What a command finds, as it prints it with `--json`; of `sweep` the rows of its table, the header first. Files that flags
/// name are written, but for the table of `sweep`. Of layouts that differ from the serial model the document of `verify` says so.
///
/// The commands are `plan`, `sweep`, `explain`, `verify`, `report` and `validate published`.
///
/// # Errors
/// Words that no such command has; whatever the command fails for.
pub fn document(words: &[String]) -> Result<Value, Failure> {
    document_until(words, &Cancel::default())
}

/// The same, until its searches are cancelled: what was found by then is no answer.
///
/// # Errors
/// As [`document`].
pub fn document_until(words: &[String], cancel: &Cancel) -> Result<Value, Failure> {
    let command = parsed(words)?;
    let launch = Launch::of(&command)?;
    match &command {
        Command::Plan(arguments) => plan::document(arguments, cancel),
        Command::Sweep(arguments) => output::json_value(&sweep::rows(arguments, cancel)?),
        Command::Explain(arguments) => explain::document(arguments),
        Command::Verify(arguments) => verify::document(arguments, &launch),
        Command::Report(arguments) => report::document(arguments),
        Command::Validate(arguments) => match &arguments.validate {
            Validate::Published(arguments) => validate::document(arguments),
            Validate::Local(_) => Err(without_document(words)),
        },
        _ => Err(without_document(words)),
    }
}

/// A run that was told of while it went.
#[derive(Debug)]
pub struct Trained {
    /// What it says at its end, as `train --json` prints it.
    pub summary: Value,
    /// The step after which it was stopped, if it was.
    pub stopped: Option<u64>,
}

/// Trains as the words that follow `quadrille train` say, and tells what happens. Signals are the caller's.
///
/// # Errors
/// Words that the command does not have; whatever it fails for.
pub fn train(words: &[String], on_event: OnEvent) -> Result<Trained, Failure> {
    let command = parsed(&[&["train".to_owned()], words].concat())?;
    let launch = Launch::of(&command)?;
    quadrille_files::allow_open_files();
    match &command {
        Command::Train(arguments) => {
            let (summary, stopped) = training::told(arguments, words, &launch, on_event)?;
            Ok(Trained { summary, stopped })
        }
        _ => Err(without_document(words)),
    }
}

/// A flag of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// Without its dashes.
    pub name: String,
    /// Whether a value may follow it.
    pub takes_value: bool,
    /// Whether it may be said several times, each time with another value.
    pub repeats: bool,
}

/// The flags of a command, or of one within another: `["validate", "published"]`; none of a command that is not there.
pub fn flags(command: &[String]) -> Vec<Flag> {
    let all = Arguments::command();
    let found = command.iter().try_fold(&all, |outer, name| outer.find_subcommand(name));
    let flag = |argument: &Arg| {
        Some(Flag {
            name: argument.get_long()?.to_owned(),
            takes_value: argument.get_action().takes_values(),
            repeats: matches!(argument.get_action(), ArgAction::Append),
        })
    };
    found.map_or_else(Vec::new, |command| command.get_arguments().filter_map(flag).collect())
}

fn parsed(words: &[String]) -> Result<Command, Failure> {
    let said: Vec<OsString> =
        ["quadrille"].into_iter().chain(words.iter().map(String::as_str)).map(Into::into).collect();
    let Arguments { command, output } = launch::read(&said).map_err(|error| Failure::of_words(&error))?;
    if output.is_usual() {
        Ok(command)
    } else {
        Err(Failure::usage("--color, --verbose, --quiet: nothing is printed here; leave them out"))
    }
}

fn without_document(words: &[String]) -> Failure {
    Failure::usage(format!("{}: this command has no document to hand over", words.join(" ")))
}

fn run(command: Command, launch: &Launch) -> Result<(), Failure> {
    match command {
        Command::Train(arguments) => training::run(&arguments, launch),
        Command::Verify(arguments) => verify::run(&arguments, launch),
        Command::Eval(arguments) => evaluate::run(&arguments, launch),
        Command::Generate(arguments) => generate::run(&arguments, launch),
        Command::Report(arguments) => report::run(&arguments),
        Command::Memorize(arguments) => memorize::run(&arguments, launch),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Paper(arguments) => paper::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments, launch),
        Command::Calibrate(arguments) => calibrate::run(&arguments, launch),
        Command::Data(arguments) => data_command::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments, launch),
        Command::Prune(arguments) => prune::run(&arguments),
        Command::Checkpoint(arguments) => checkpoint_command::run(&arguments),
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
    }
}
