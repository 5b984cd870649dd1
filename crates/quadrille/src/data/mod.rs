//! `quadrille data`: text and files of tokens, without training.

mod info;
mod prepare;

use clap::{Args, Subcommand};

use self::info::InfoArguments;
use self::prepare::PrepareArguments;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct DataCommandArguments {
    #[command(subcommand)]
    pub data: DataCommand,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Write text, or other files of tokens, as a file of tokens
    Prepare(PrepareArguments),
    /// Read files in full and say what they hold: format, tokens, documents, tokenizer, checksum
    Info(InfoArguments),
}

/// Runs one of them.
pub fn run(arguments: &DataCommandArguments) -> Result<(), Failure> {
    match &arguments.data {
        DataCommand::Prepare(arguments) => prepare::run(arguments),
        DataCommand::Info(arguments) => info::run(arguments),
    }
}
