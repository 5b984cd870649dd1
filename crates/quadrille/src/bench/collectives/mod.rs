//! `quadrille bench collectives`: collectives by every algorithm, beside what the transport brings and a plain copy.
//!
//! What is measured is decided first (`cases.rs`), measured on all ranks (`measure.rs`), then printed (`table.rs`,
//! `heatmap.rs`), apart from each other: where ranks are processes, all of them measure and one prints.

pub mod arguments;
mod cases;
mod heatmap;
mod rates;
mod sizes;
mod table;

use std::path::Path;

use indicatif::ProgressBar;
use quadrille_engine::EngineError;
use quadrille_measure::collectives::{Collective, copy as plain_copy, slowest, times};
use quadrille_spec::Algorithm;
use serde::Serialize;

use self::arguments::BenchCollectivesArguments;
use self::cases::{Case, Cases};
use self::rates::Measured;
use crate::bench::median;
use crate::failure::Failure;
use crate::files::check_writable;
use crate::launch::Launch;
use crate::output::{csv, print_json, print_text, write_file};
use crate::paths;

#[derive(Serialize)]
struct Document {
    collectives: Vec<Measured>,
}

/// Measures and reports.
pub fn run(arguments: &BenchCollectivesArguments, launch: &Launch) -> Result<(), Failure> {
    let written = [("--csv", arguments.csv.as_deref()), ("--svg", arguments.svg.as_deref())];
    let written: Vec<(&'static str, &Path)> =
        written.into_iter().filter_map(|(flag, path)| Some((flag, path?))).collect();
    let cluster =
        arguments.cluster.iter().map(|name| ("--cluster", Path::new(name))).filter(|(_, path)| path.is_file());
    paths::check(&written, &cluster.collect::<Vec<_>>())?;
    let cases = Cases::new(arguments, launch)?;
    if launch.is_first() {
        written.iter().try_for_each(|(flag, path)| check_writable(flag, path))?;
    }
    let collectives = measure_all(&cases, launch)?;
    if !launch.is_first() {
        return Ok(());
    }
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, csv(table::rows(&collectives))?.as_bytes())?;
    }
    if let Some(path) = &arguments.svg {
        write_file("--svg", path, heatmap::drawing(&collectives).as_bytes())?;
    }
    if arguments.json { print_json(&Document { collectives }) } else { print_text(&table::text(&collectives)) }
}

/// Every case, ordered by collective, ranks, size and algorithm.
fn measure_all(cases: &Cases, launch: &Launch) -> Result<Vec<Measured>, EngineError> {
    let bar = ProgressBar::with_draw_target(Some(cases.cases.len() as u64), launch.progress());
    let mut by_case = Vec::new();
    for case in &cases.cases {
        by_case.push(measure(cases, case)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let of = |kind| by_case.iter().flatten().filter(move |measured| measured.kind == kind).cloned();
    Ok(cases.collectives.iter().flat_map(|collective| of(collective.kind)).collect())
}

/// Every collective at one size; the copy before and after them, of which the faster counts.
fn measure(cases: &Cases, case: &Case) -> Result<Vec<Measured>, EngineError> {
    let copy = || {
        let job = cases.job(case, Algorithm::Native);
        times(&job, [case.full(), case.full()], cases.runs, plain_copy).map(|times| median(slowest(&times)))
    };
    let before = copy()?;
    let mut measured = Vec::new();
    for Collective { kind, lengths, run } in &cases.collectives {
        let mut native = None;
        for algorithm in &case.algorithms {
            let times = times(&cases.job(case, *algorithm), lengths(case.full(), case.part), cases.runs, *run)?;
            let of = Measured::new(case, *kind, *algorithm, slowest(&times), native, cases.tiers.as_deref());
            native = native.or(Some(of.seconds));
            measured.push(of);
        }
    }
    let copy = before.min(copy()?);
    measured.iter_mut().for_each(|measured| measured.beside_copy(copy));
    Ok(measured)
}
