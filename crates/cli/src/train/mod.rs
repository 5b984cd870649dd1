//! `quadrille train`: flags become what decides a run, and what happens is printed. The run itself is `quadrille_run`'s.

pub mod arguments;
mod flags;
mod reporter;
mod resumed;

use std::ffi::OsString;
use std::ops::ControlFlow;

use arguments::TrainArguments;
use quadrille_report::ledger;
use quadrille_report::summary::announcement;
use quadrille_run::{Ended, Host, OnEvent, Prepared, cores};
use reporter::Reporter;
use serde_json::Value;

use crate::failure::{Failure, Stopped};
use crate::launch::Launch;
use crate::output::{detail, json_value, print_json, print_text, tell};
use crate::{bars, paths};

/// Trains and reports.
pub fn run(arguments: &TrainArguments, launch: &Launch) -> Result<(), Failure> {
    let words = std::env::args_os().skip_while(|word| word != "train").skip(1);
    let mut prepared = prepare(arguments, command(words)?, launch)?;
    prepared.stop_on_signals()?;
    carry_out(prepared, arguments, launch)
}

/// Trains and tells what happens; what the run says at its end, and where it was stopped, if it was.
pub fn told(
    arguments: &TrainArguments,
    words: &[String],
    launch: &Launch,
    on_event: OnEvent,
) -> Result<(Value, Option<u64>), Failure> {
    let prepared = prepare(arguments, command(words.iter().map(OsString::from))?, launch)?;
    let outcome = prepared.run(on_event)?.check()?;
    let stopped = match outcome.ended {
        Ended::Stopped { step, .. } => Some(step),
        Ended::Whole => None,
    };
    let summary = outcome.summary.as_ref().map_or(Ok(Value::Null), json_value)?;
    Ok((summary, stopped))
}

/// The run that is asked for, ready to begin or to go on.
fn prepare(arguments: &TrainArguments, command: Vec<String>, launch: &Launch) -> Result<Prepared, Failure> {
    bars::preparing(|on_preparation| {
        let host = Host { processes: launch.processes().clone(), command, on_preparation };
        if let Some(folder) = &arguments.resume {
            check_paths(arguments)?;
            return resumed::prepare(folder, arguments, launch, host);
        }
        let spec = flags::spec(arguments, launch)?;
        check_paths(arguments)?;
        Ok(Prepared::begin(spec, arguments.out.as_deref(), &host)?)
    })
}

/// Trains and reports what was prepared.
fn carry_out(prepared: Prepared, arguments: &TrainArguments, launch: &Launch) -> Result<(), Failure> {
    let first = launch.is_first();
    if first && !arguments.json {
        tell(&announcement(&prepared));
    }
    if first {
        let ranks = prepared.program.layout.grid.ranks();
        let threads = launch.threads(prepared.spec().threads, ranks)?;
        detail(&format!("{threads} threads for each of {ranks} ranks, {} cores here", cores()));
    }
    let program = prepared.program.clone();
    let reporter = Reporter::new(arguments, &prepared, first);
    let outcome = prepared.run(&mut |event| {
        reporter.see(event);
        ControlFlow::Continue(())
    });
    reporter.finish();
    let outcome = outcome?;
    let stopped = stopped(outcome.ended, arguments);
    let Some(document) = &outcome.summary else { return stopped.map_or(Ok(()), Err) };
    if arguments.json {
        print_json(document)?
    } else {
        print_text(ledger::of_run(&program, &outcome.trained))?
    }
    outcome.check()?;
    stopped.map_or(Ok(()), Err)
}

/// What followed `quadrille train`, without the folder of the run: that is where it is found.
fn command(words: impl Iterator<Item = OsString>) -> Result<Vec<String>, Failure> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| Failure::usage(format!("{word:?}: a run's command line is UTF-8 text")))
    };
    let words: Vec<String> = words.map(text).collect::<Result<_, _>>()?;
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

/// Refuses to write over the files that describe model, layout and cluster; a run knows those that it reads.
fn check_paths(arguments: &TrainArguments) -> Result<(), Failure> {
    let TrainArguments { log, trace, tune_matmul, model, layout, .. } = arguments;
    let tuning = tune_matmul.clone().flatten();
    let written = paths::asked([("--log", log), ("--trace", trace), ("--tune-matmul", &tuning)]);
    paths::check_described(&written, model, layout)
}

/// Whether a signal has ended the run early, and how to go on.
fn stopped(ended: Ended, arguments: &TrainArguments) -> Option<Failure> {
    let Ended::Stopped { step, of, signal } = ended else { return None };
    let remedy = match arguments.out.as_ref().or(arguments.resume.as_ref()) {
        Some(folder) => format!("go on with --resume {}", folder.display()),
        None => "without --out nothing was kept".to_owned(),
    };
    let message = format!("by a signal, after step {step} of {of}; {remedy}");
    Some(Failure::Stopped(Stopped { signal, message }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use quadrille_step::{Operation, StepProgram, When};

    use super::*;
    use crate::arguments::{Arguments, Command};

    fn parsed(line: &str) -> TrainArguments {
        match Arguments::try_parse_from(line.split_whitespace()) {
            Ok(Arguments { command: Command::Train(arguments), .. }) => *arguments,
            _ => panic!("{line}"),
        }
    }

    /// The first update that `program` has is not done in the step's second microbatch, nor after it.
    fn with_an_update_too_few(program: &mut StepProgram) {
        let mut updates = program.stages[0].update.ops.iter_mut();
        updates.find(|op| matches!(op.operation, Operation::AdamW(_))).unwrap().when = When::First;
    }

    #[test]
    fn a_count_that_was_not_predicted_fails_the_run() {
        let arguments = parsed(
            "quadrille train --model gpt-tiny --set vocab=256 --grid x=2 --global-batch 4 --microbatch 2 --steps 2 --threads 1",
        );
        let trained = |change: fn(&mut StepProgram)| {
            let mut prepared = prepare(&arguments, Vec::new(), &Launch::THREADS).unwrap();
            change(&mut prepared.program);
            carry_out(prepared, &arguments, &Launch::THREADS)
        };
        trained(|_| {}).unwrap();
        let failure = trained(with_an_update_too_few).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        let message = failure.message();
        assert!(
            message.contains("the counted ledger differs from the predicted one: rank 0, elements of adamw: "),
            "{message}"
        );
    }
}
