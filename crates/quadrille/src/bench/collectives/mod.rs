//! `quadrille bench collectives`: collectives by every algorithm, beside what the transport brings and a plain copy.
//!
//! What is measured is decided first (`cases.rs`), measured on all ranks (the crate `measure`), then told (the crate `report`),
//! apart from each other: where ranks are processes, all of them measure and one prints.

pub mod arguments;
mod cases;

use std::path::Path;

use indicatif::ProgressBar;
use quadrille_measure::collectives::Measured;
use quadrille_report::collectives as told;
use serde::Serialize;

use self::arguments::BenchCollectivesArguments;
use crate::failure::Failure;
use crate::files::check_writable;
use crate::launch::Launch;
use crate::output::{print_json, print_text, write_file, write_rows};
use crate::paths;

#[derive(Serialize)]
struct Document {
    collectives: Vec<Measured>,
}

/// Measures and reports.
pub fn run(arguments: &BenchCollectivesArguments, launch: &Launch) -> Result<(), Failure> {
    let written = paths::asked([("--csv", &arguments.csv), ("--svg", &arguments.svg)]);
    let cluster =
        arguments.cluster.iter().map(|name| ("--cluster", Path::new(name))).filter(|(_, path)| path.is_file());
    paths::check(&written, &cluster.collect::<Vec<_>>())?;
    let cases = cases::of(arguments, launch)?;
    if launch.is_first() {
        written.iter().try_for_each(|(flag, path)| check_writable(flag, path))?;
    }
    let bar = ProgressBar::with_draw_target(Some(cases.cases().len() as u64), launch.progress());
    let collectives = cases.measure(&mut |progress| bar.set_position(progress.done as u64))?;
    bar.finish_and_clear();
    if !launch.is_first() {
        return Ok(());
    }
    write_rows("--csv", arguments.csv.as_deref(), || told::rows(&collectives))?;
    if let Some(path) = &arguments.svg {
        write_file("--svg", path, told::heatmap(&collectives).as_bytes())?;
    }
    if arguments.json { print_json(&Document { collectives }) } else { print_text(&told::text(&collectives)) }
}
