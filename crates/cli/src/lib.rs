//! The command line of `quadrille`: options, printing, exit codes; all work is done by the crates below.
//!
//! [`command_line::main`] is the program. [`command_line::document`] and [`command_line::train`] run a command of given words within
//! another program, as the Python package does.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod command_line;

mod arguments;
mod bars;
mod bench;
mod calibrate;
mod checkpoint_command;
mod convert;
mod data_arguments;
mod data_command;
mod device;
mod documents;
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
mod paper;
mod parse;
mod paths;
mod plan;
mod prune;
mod quantities;
mod report;
mod serve;
mod shell;
mod sweep;
mod terminal;
mod timeline;
mod train;
mod validate;
mod verify;
mod weights;
