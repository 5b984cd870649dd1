//! `quadrille reproduce`: figures printed in the source works beside ours.

use std::path::Path;

use quadrille_papers::reproduce::PARTS;
use quadrille_report::papers::reproduce;

use crate::arguments::{ALL_PARTS, ReproduceArguments};
use crate::failure::Failure;
use crate::output::{csv, print_json, print_text};

/// Computes the points of the works that were asked for and prints them.
pub fn run(arguments: &ReproduceArguments) -> Result<(), Failure> {
    let wanted = PARTS.into_iter().filter(|part| [part.name, ALL_PARTS].contains(&arguments.part.as_str()));
    let computed = wanted.map(|part| Ok((part, part.points()?))).collect::<Result<Vec<_>, Failure>>()?;
    if let Some(path) = &arguments.csv {
        write(path, &csv(reproduce::rows(&computed))?)?;
    }
    if arguments.json { print_json(&reproduce::document(&computed)) } else { print_text(&reproduce::text(&computed)) }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}
