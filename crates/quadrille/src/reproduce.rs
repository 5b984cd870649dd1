//! `quadrille reproduce`: figures printed in the source works beside ours.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use quadrille_measure::Progress;
use quadrille_papers::reproduce::{PARTS, Part};
use quadrille_report::papers::reproduce;

use crate::bars;
use crate::failure::Failure;
use crate::output::{print_json, print_text, write_rows};

/// Printed figures beside ours: by the works' formulas, and by our schedules. Figures that do not follow from formulas,
/// such as measured times, are left out.
#[derive(Debug, Args)]
pub struct ReproduceArguments {
    /// Which work
    #[arg(value_name = "WORK", default_value = ALL_PARTS, value_parser = PossibleValuesParser::new(parts()))]
    pub part: String,
    /// Write the points to this file as comma-separated values, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What `reproduce` calls all works.
const ALL_PARTS: &str = "all";

fn parts() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name).chain([ALL_PARTS])
}

/// Computes the points of the works that were asked for and prints them.
pub fn run(arguments: &ReproduceArguments) -> Result<(), Failure> {
    let mut wanted = PARTS.to_vec();
    wanted.retain(|part| [part.name, ALL_PARTS].contains(&arguments.part.as_str()));
    let of = wanted.len();
    let computed = bars::measuring(|told| {
        let points = |(done, part): (usize, Part)| {
            told(Progress { done, of, next: Some(part.name) });
            Ok((part, part.points()?))
        };
        wanted.into_iter().enumerate().map(points).collect::<Result<Vec<_>, Failure>>()
    })?;
    write_rows("--csv", arguments.csv.as_deref(), || reproduce::rows(&computed))?;
    if arguments.json { print_json(&reproduce::document(&computed)) } else { print_text(reproduce::text(&computed)) }
}
