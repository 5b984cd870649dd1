//! The command line of a run that goes on: that of its beginning, and in place of it what is said now.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, Parser};

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
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

/// Whether the command line of this process has a flag.
pub fn says(flag: &str) -> Result<bool, Failure> {
    Ok(command()?.iter().any(|word| name(word) == Some(flag)))
}

/// Whether this command line itself says what is to be read: then it may be other than what the run has begun with.
pub fn names_data() -> Result<bool, Failure> {
    const FLAGS: [&str; 6] =
        ["--data", "--validation", "--validation-data", "--documents", "--tokenizer", "--text-field"];
    Ok(command()?.iter().filter_map(|word| name(word)).any(|flag| FLAGS.contains(&flag)))
}

/// The flag that a word is.
fn name(word: &str) -> Option<&str> {
    let name = word.split('=').next().unwrap_or(word);
    name.starts_with("--").then_some(name)
}

/// What was said before, without what is said again, and then what is said now. `--set` adds up.
fn merged(before: Vec<String>, now: Vec<String>) -> Vec<String> {
    let said: Vec<&str> = now.iter().filter_map(|word| name(word)).collect();
    let layout = said.contains(&"--layout");
    let replaced = |flag: &str| {
        let partner = match flag {
            "--validation" => "--validation-data",
            "--validation-data" => "--validation",
            _ => flag,
        };
        let again = said.contains(&flag) || said.contains(&partner);
        (again && flag != "--set") || (layout && is_of_layout(flag))
    };
    let mut kept = Vec::new();
    let mut drops = false;
    for word in before {
        // A flag's values follow it up to the next flag.
        if let Some(flag) = name(&word) {
            drops = replaced(flag);
        }
        if !drops {
            kept.push(word);
        }
    }
    kept.extend(now);
    kept
}

/// Whether a layout file may say the same.
fn is_of_layout(flag: &str) -> bool {
    let layout = LayoutArguments::augment_args(clap::Command::new("layout"));
    let flags: Vec<_> = layout.get_arguments().filter_map(|argument| argument.get_long()).collect();
    flag != "--cluster" && flags.iter().any(|long| flag.strip_prefix("--") == Some(*long))
}

/// The whole command line of the run in `folder`, and its arguments.
pub fn arguments(folder: &Path) -> Result<(Vec<String>, TrainArguments), Failure> {
    let whole = merged(describe(folder)?.command, command()?);
    let resume = ["--resume".into(), folder.into()];
    let words = ["quadrille".into(), "train".into()].into_iter().chain(whole.iter().map(OsString::from)).chain(resume);
    match Arguments::try_parse_from(words) {
        Ok(Arguments { command: Command::Train(arguments) }) => Ok((whole, *arguments)),
        Ok(_) => Err(Failure::usage(format!("{}: its run.json is of no training run", folder.display()))),
        Err(error) => {
            let text = error.render().to_string();
            Err(Failure::usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_said_again_replaces_what_was_said() {
        for (before, now, whole) in [
            ("--data a b:0.3 --steps 4", "--data c", "--steps 4 --data c"),
            (
                "--set clip=1 --grid x=2 --zero 1",
                "--set beta1=0.8 --layout l.toml",
                "--set clip=1 --set beta1=0.8 --layout l.toml",
            ),
            ("--validation=0.1 --lr -1", "--validation-data v", "--lr -1 --validation-data v"),
            ("--cluster here.toml --cac", "--layout l.toml", "--cluster here.toml --layout l.toml"),
            ("--steps=4 --seed 2", "", "--steps=4 --seed 2"),
        ] {
            assert_eq!(merged(words(before), words(now)), words(whole), "{before} and {now}");
        }
    }
}
