//! `quadrille bench collectives`: collectives by every algorithm, beside what the transport brings and a plain copy.
//!
//! What is measured is decided first, measured on all ranks (the crate `measure`), then told (the crate `report`), apart
//! from each other: where ranks are processes, all of them measure and one prints.

pub mod arguments;

use std::path::Path;

use quadrille_measure::collectives::{Cases, CollectivesSpec, Runs};
use quadrille_pages::collectives_page;
use quadrille_report::collectives as told;
use quadrille_run::{LayoutDefaults, described};

use self::arguments::BenchCollectivesArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{check_writable, json_value, print_json, print_text, write_file, write_rows};
use crate::{bars, paths};

/// Numbers of thread ranks that are measured unless others are asked for.
const RANKS: [usize; 2] = [2, 4];

/// Measures and reports.
pub fn run(arguments: &BenchCollectivesArguments, launch: &Launch) -> Result<(), Failure> {
    let written = paths::asked([("--csv", &arguments.csv), ("--html", &arguments.html)]);
    let cluster =
        arguments.cluster.iter().map(|name| ("--cluster", Path::new(name))).filter(|(_, path)| path.is_file());
    paths::check(&written, &cluster.collect::<Vec<_>>())?;
    let cases = cases(arguments, launch)?;
    if launch.is_first() {
        written.iter().try_for_each(|(flag, path)| check_writable(flag, path))?;
    }
    let bar = bars::counted(launch, cases.cases().len());
    let collectives = cases.measure(&mut |progress| bar.set_position(progress.done as u64))?;
    bar.finish_and_clear();
    if !launch.is_first() {
        return Ok(());
    }
    write_rows("--csv", arguments.csv.as_deref(), || told::rows(&collectives))?;
    let report = told::CollectivesReport::new(collectives);
    if let Some(path) = &arguments.html {
        write_file("--html", path, collectives_page(&json_value(&report)?).as_bytes())?;
    }
    if arguments.json { print_json(&report) } else { print_text(told::text(&report.collectives)) }
}

/// What is measured, checked before anything runs: also that the buffers fit into memory.
fn cases(arguments: &BenchCollectivesArguments, launch: &Launch) -> Result<Cases, Failure> {
    let cluster = arguments.cluster.as_deref().map(described::cluster).transpose()?;
    let started = launch.defaults(&LayoutDefaults::USUAL)?;
    let mut ranks: Vec<usize> = arguments.ranks.iter().map(|ranks| usize::from(*ranks)).collect();
    if ranks.is_empty() {
        ranks = if launch.world.is_some() { vec![started.ranks] } else { RANKS.to_vec() };
    }
    ranks.iter().try_for_each(|ranks| launch.check_ranks(*ranks))?;
    let cases = Cases::new(&CollectivesSpec {
        collectives: arguments.collective.clone(),
        algorithms: arguments.algorithms.clone(),
        per_node: arguments.per_node.map(usize::from).or(started.per_node),
        runs: arguments.runs.map_or(Runs::Enough, Runs::Exactly),
        cluster,
        world: launch.world.clone(),
        ..CollectivesSpec::new(ranks, arguments.sizes.bytes().to_vec())
    })?;
    cases.check_memory()?;
    Ok(cases)
}
