//! `quadrille validate published`: the native model held against what others have measured.

use std::path::{Path, PathBuf};

use clap::Args;
use quadrille_evidence::{BUILT_IN, Row, Summary, evaluate, read};
use quadrille_report::published;

use crate::documents;
use crate::failure::Failure;
use crate::output::{print_json, print_text, write_rows};

#[derive(Debug, Args)]
pub struct ValidatePublishedArguments {
    /// Measured runs as a CSV file with the columns of the built-in one [default: built in]
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Write every predicted row beside what was measured, with the parts of its time and memory, to this file, in place
    /// of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub rows: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Prices every run, compares and prints.
pub fn run(arguments: &ValidatePublishedArguments) -> Result<(), Failure> {
    let rows = rows(arguments.csv.as_deref())?;
    let evaluation = evaluate(&rows)?;
    let summary = Summary::of(&evaluation);
    write_rows("--rows", arguments.rows.as_deref(), || published::rows(&evaluation))?;
    if arguments.json {
        return print_json(&published::document(&evaluation, &summary));
    }
    print_text(&published::text(&evaluation, &summary))
}

fn rows(path: Option<&Path>) -> Result<Vec<Row>, Failure> {
    let Some(path) = path else {
        return read(BUILT_IN).map_err(|error| Failure::Run(error.into()));
    };
    read(&documents::TABLE.text(path)?).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}
