//! `quadrille paper WORK reproduce`: figures of the source works compared with ours.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use quadrille_measure::Progress;
use quadrille_papers::reproduce::Part;
use quadrille_report::papers::reproduce;

use crate::bars;
use crate::failure::Failure;
use crate::output::{print_json, print_text, write_rows};

/// The command of works without a planner.
#[derive(Debug, Subcommand)]
pub enum ReproduceCommand {
    /// Compare the figures of the work with ours
    Reproduce(ReproduceArguments),
}

const EXAMPLES: &str = "Examples:
  quadrille paper atp reproduce
  quadrille paper all reproduce --csv points.csv";

/// Printed figures and ours: by the work's formulas, and by our schedules. Figures that do not follow from formulas,
/// such as measured times, are left out.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReproduceArguments {
    /// Write the points to this file as comma-separated values, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Computes the points of works and prints them.
pub fn run(parts: &[Part], arguments: &ReproduceArguments) -> Result<(), Failure> {
    let of = parts.len();
    let computed = bars::measuring(|told| {
        let points = |(done, part): (usize, &Part)| {
            told(Progress { done, of, next: Some(part.name) });
            Ok((*part, part.points()?))
        };
        parts.iter().enumerate().map(points).collect::<Result<Vec<_>, Failure>>()
    })?;
    write_rows("--csv", arguments.csv.as_deref(), || reproduce::rows(&computed))?;
    if arguments.json { print_json(&reproduce::document(&computed)) } else { print_text(reproduce::text(&computed)) }
}
