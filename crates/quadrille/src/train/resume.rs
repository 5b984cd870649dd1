//! The command line of a run that goes on: that of its beginning, and in place of it what is said now.

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches};

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;
use crate::launch::refuse;
use crate::run_folder::describe;
use crate::train::arguments::TrainArguments;

/// What followed `quadrille train`, without the folder of the run: that is where it is found.
pub fn command() -> Result<Vec<String>, Failure> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| Failure::usage(format!("{word:?}: a run's command line is UTF-8 text")))
    };
    let words: Vec<String> = std::env::args_os().skip(2).map(text).collect::<Result<_, _>>()?;
    let mut kept = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" | "--resume" => drop(words.next()),
            _ if word.starts_with("--out=") || word.starts_with("--resume=") => {}
            _ => kept.push(word),
        }
    }
    Ok(kept)
}

/// Whether this command line itself says what is to be read: then it may be other than what the run has begun with.
pub fn names_data() -> Result<bool, Failure> {
    const FLAGS: [&str; 6] =
        ["--data", "--validation", "--validation-data", "--documents", "--tokenizer", "--text-field"];
    let names = |word: &String| FLAGS.contains(&word.split('=').next().unwrap_or_default());
    Ok(command()?.iter().any(names))
}

/// The whole command line of the run in `folder`, and its arguments.
pub fn arguments(folder: &Path) -> Result<(Vec<String>, TrainArguments), Failure> {
    let mut whole = describe(folder)?.command;
    whole.extend(command()?);
    let resume = ["--resume".into(), folder.into()];
    let words = ["quadrille".into(), "train".into()].into_iter().chain(whole.iter().map(OsString::from)).chain(resume);
    let parser = Arguments::command().mut_subcommand("train", |train| train.args_override_self(true));
    let matches = parser.try_get_matches_from(words).and_then(|matches| Arguments::from_arg_matches(&matches));
    match matches {
        Ok(Arguments { command: Command::Train(arguments) }) => Ok((whole, *arguments)),
        Ok(_) => Err(Failure::usage(format!("{}: its run.json is of no training run", folder.display()))),
        Err(error) => refuse(&error),
    }
}
