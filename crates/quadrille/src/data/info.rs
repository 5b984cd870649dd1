//! `quadrille data info`: what files hold.

use std::path::PathBuf;

use clap::Args;
use quadrille_data::inspect;
use quadrille_report::contents;

use crate::failure::Failure;
use crate::output::{print_json, print_text};

#[derive(Debug, Args)]
#[command(after_help = "Example:
  quadrille data info wiki.tokens corpus.idx --json")]
pub struct InfoArguments {
    /// Files of tokens or of text, or folders; all of them are read and checked
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The field of JSON lines that holds the text
    #[arg(long, value_name = "FIELD", default_value = "text")]
    pub text_field: String,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Prints a line, or an object, for every file.
pub fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let found = inspect(&arguments.files, &arguments.text_field)?;
    if arguments.json { print_json(&contents::document(&found)) } else { print_text(&contents::text(&found)) }
}
