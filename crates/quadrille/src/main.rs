//! The command line of Quadrille: `train`, `verify`, `explain`, `plan`, `sweep`, `estimate`, `reproduce`, `export`,
//! `bench`.
//!
//! Exit codes: 0 success, 1 a failed run or proof, 2 input that cannot be used.

mod arguments;
mod bench;
mod constants;
mod describe;
mod estimate;
mod explain;
mod export;
mod failure;
mod files;
mod layout_arguments;
mod output;
mod paths;
mod plan;
mod quantities;
mod recomputation;
mod reproduce;
mod resources;
mod settings;
mod source;
mod sweep;
mod timeline;
mod trace;
mod train;
mod tuned;
mod validate;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Estimate(arguments) => estimate::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.exit_code())
        }
    }
}
