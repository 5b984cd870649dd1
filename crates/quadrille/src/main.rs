//! The command line of Quadrille: `train`, `eval`, `generate`, `memorize`, `verify`, `report`, `explain`, `plan`,
//! `sweep`, `serve`, `estimate`, `reproduce`, `export`, `convert`, `calibrate`, `validate`, `data`, `bench`, `checkpoint`,
//! `completions`, `man`.
//!
//! Exit codes: 0 success, 1 a failed run or proof, 2 input that cannot be used.

mod arguments;
mod bars;
mod bench;
mod calibrate;
mod checkpoint;
mod convert;
mod data;
mod data_arguments;
mod device;
mod documents;
mod estimate;
mod evaluate;
mod explain;
mod export;
mod failure;
mod flags;
mod generate;
mod launch;
mod layout_arguments;
mod layout_flags;
mod memorize;
mod numbers;
mod output;
mod paths;
mod plan;
mod prune;
mod quantities;
mod report;
mod reproduce;
mod serve;
mod shell;
mod sweep;
mod terminal;
mod timeline;
mod train;
mod validate;
mod verify;
mod weights;

use std::process::ExitCode;
use std::time::Instant;

use quadrille_run::units::seconds;

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;
use crate::launch::Launch;

fn main() -> ExitCode {
    quadrille_files::allow_open_files();
    let Arguments { command, output } = launch::arguments();
    terminal::set(output);
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

fn run(command: Command, launch: &Launch) -> Result<(), Failure> {
    match command {
        Command::Train(arguments) => train::run(&arguments, launch),
        Command::Verify(arguments) => verify::run(&arguments, launch),
        Command::Eval(arguments) => evaluate::run(&arguments, launch),
        Command::Generate(arguments) => generate::run(&arguments, launch),
        Command::Report(arguments) => report::run(&arguments),
        Command::Memorize(arguments) => memorize::run(&arguments, launch),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Estimate(arguments) => estimate::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments, launch),
        Command::Calibrate(arguments) => calibrate::run(&arguments, launch),
        Command::Data(arguments) => data::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments, launch),
        Command::Prune(arguments) => prune::run(&arguments),
        Command::Checkpoint(arguments) => checkpoint::run(&arguments),
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
    }
}
