//! `quadrille data`: text and files of tokens, without training.

mod prepare;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use quadrille_data::{InputFormat, TextRules, inspect};
use quadrille_report::contents::ContentsReport;

use self::prepare::PrepareArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text};

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
        DataCommand::Info(arguments) => info(arguments),
    }
}

/// What files hold.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  quadrille data info wiki.tokens corpus.idx --json")]
pub struct InfoArguments {
    /// Files of tokens or of text, or folders; all of them are read and checked
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The field of JSON lines, or column of Parquet files, that holds the text
    #[arg(long, value_name = "FIELD", default_value = "text")]
    pub text_field: String,
    /// Format of files that do not show theirs: auto (JSON lines by name or first line, otherwise text; doubtful files are refused),
    /// text, json-lines, parquet, or raw-u16 or raw-u32 (token ids without a header, as nanoGPT writes them)
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub format: InputFormat,
    /// Skip lines of JSON lines and rows of Parquet files that hold no text in the field, and report how many; without it the first
    /// is an error
    #[arg(long)]
    pub skip_bad_lines: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Prints a line, or an object, for every file.
fn info(arguments: &InfoArguments) -> Result<(), Failure> {
    let rules =
        TextRules { field: &arguments.text_field, format: arguments.format, skip_bad_lines: arguments.skip_bad_lines };
    let found = inspect(&arguments.files, rules)?;
    let report = ContentsReport::new(&found);
    if arguments.json { print_json(&report) } else { print_text(report.text()) }
}
