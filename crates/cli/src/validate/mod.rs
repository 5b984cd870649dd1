//! `quadrille validate`: predictions of the native model held against measured steps.

pub mod local;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use quadrille_evidence::{BUILT_IN, Evaluation, Known, Row, Summary, evaluate, fit, read};
use quadrille_pages::published_page;
use quadrille_report::published;
use quadrille_spec::FlopsConvention;
use serde_json::Value;

use self::local::ValidateLocalArguments;
use crate::bars;
use crate::documents;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{json_value, print_json, print_text, write_file, write_rows};

#[derive(Debug, Args)]
pub struct ValidateArguments {
    #[command(subcommand)]
    pub validate: Validate,
}

#[derive(Debug, Subcommand)]
pub enum Validate {
    /// Step times, memory and out-of-memory outcomes of published runs, by the native model
    Published(ValidatePublishedArguments),
    /// Step times of layouts, predicted by the native model and measured on this machine
    Local(Box<ValidateLocalArguments>),
}

/// Runs one of the comparisons.
pub fn run(arguments: &ValidateArguments, launch: &Launch) -> Result<(), Failure> {
    match &arguments.validate {
        Validate::Published(arguments) => published_runs(arguments, launch),
        Validate::Local(arguments) => local::run(arguments, launch),
    }
}

/// The native model held against what others have measured.
#[derive(Debug, Args)]
pub struct ValidatePublishedArguments {
    /// Measured runs as a CSV file with the columns of the built-in one [default: built in]
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Write every predicted row beside what was measured, with the parts of its time and memory, to this file, in place
    /// of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub rows: Option<PathBuf>,
    /// Write a page to this file, in place of what it holds: predicted against measured seconds and bytes, errors by source, every
    /// row. It opens in any browser, without a network
    #[arg(long, value_name = "FILE.html", conflicts_with = "cross")]
    pub html: Option<PathBuf>,
    /// Fit ceilings of devices, networks and constants of frameworks anew, on all rows, without each source, and without each
    /// source's runs of a model, and print what is then predicted of these: five to ten minutes on two cores
    #[arg(long, conflicts_with = "rows")]
    pub cross: bool,
    /// Write what --cross found to this file, in place of what it holds: the table that error bands of plans are from
    #[arg(long, value_name = "FILE.csv", requires = "cross")]
    pub table: Option<PathBuf>,
    /// Count the FLOPs of TFLOP/s and MFU in --rows as native (products and attention without causal discount), megatron (as
    /// Megatron-LM's log) or torchtitan (as its log) [default: native]
    #[arg(long, value_name = "NAME", requires = "rows")]
    pub flops_convention: Option<FlopsConvention>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Fits anew without each source and each model, and prints.
fn crossed(arguments: &ValidatePublishedArguments, evaluation: &Evaluation, launch: &Launch) -> Result<(), Failure> {
    let samples = fit::samples(&evaluation.entries)?;
    let numbers = fit::on_all(&samples)?;
    let bar = bars::counted(launch, fit::fits(&samples));
    let crossed = fit::cross(&samples, |_| bar.inc(1))?;
    bar.finish_and_clear();
    let known = Known::of(&samples, &crossed);
    write_rows("--table", arguments.table.as_deref(), || Known::rows(&known))?;
    if arguments.json {
        return print_json(&published::crossed_document(&known, &numbers));
    }
    print_text(published::crossed_text(&known, &numbers))
}

/// Prices every run, compares and prints.
fn published_runs(arguments: &ValidatePublishedArguments, launch: &Launch) -> Result<(), Failure> {
    if arguments.cross {
        return crossed(arguments, &evaluate(&measured(arguments.csv.as_deref())?)?, launch);
    }
    if arguments.json {
        print_json(&compared(arguments, published::document)?)
    } else {
        print_text(compared(arguments, published::text)?)
    }
}

/// Every run beside its price, whatever is fitted.
pub fn document(arguments: &ValidatePublishedArguments) -> Result<Value, Failure> {
    if arguments.cross {
        Err(Failure::usage("--cross: documents are of predictions by the numbers in use; leave it out"))
    } else {
        json_value(&compared(arguments, published::document)?)
    }
}

fn compared<T>(
    arguments: &ValidatePublishedArguments,
    tell: impl FnOnce(&Evaluation, &Summary) -> T,
) -> Result<T, Failure> {
    let rows = measured(arguments.csv.as_deref())?;
    let evaluation = evaluate(&rows)?;
    write_rows("--rows", arguments.rows.as_deref(), || {
        published::rows(&evaluation, arguments.flops_convention.unwrap_or_default())
    })?;
    let summary = Summary::of(&evaluation);
    if let Some(path) = &arguments.html {
        let page = published_page(&json_value(&published::page(&evaluation, &summary))?);
        write_file("--html", path, page.as_bytes())?;
    }
    Ok(tell(&evaluation, &summary))
}

fn measured(path: Option<&Path>) -> Result<Vec<Row>, Failure> {
    let Some(path) = path else {
        return read(BUILT_IN).map_err(|error| Failure::Run(error.into()));
    };
    read(&documents::TABLE.text(path)?).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}
