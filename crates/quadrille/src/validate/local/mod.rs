//! `quadrille validate local`: steps of many layouts, predicted by the native model and measured on this machine.
//!
//! [`Case::new`] reads what was typed, [`Case::measure`] shows how far it is, [`publish`] alone prints and writes; what was
//! found is told by the crate `report`.

mod arguments;
mod case;

use quadrille_measure::local::Comparison;

pub use self::arguments::ValidateLocalArguments;
use self::case::Case;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text, write_file, write_rows};
use crate::{files, paths};

/// Predicts, measures, compares.
pub fn run(arguments: &ValidateLocalArguments, launch: &Launch) -> Result<(), Failure> {
    // Measuring takes its time: files that cannot be written are found before.
    let written = paths::asked([("--csv", &arguments.csv), ("--html", &arguments.html)]);
    paths::check_described(&written, &arguments.model, &arguments.layout)?;
    if launch.is_first() {
        written.iter().try_for_each(|(flag, path)| files::check_writable(flag, path))?;
    }
    let case = Case::new(arguments, launch)?;
    let comparison = case.measure(launch)?;
    if launch.is_first() {
        publish(arguments, &case, &comparison)?;
    }
    Ok(comparison.check_ledgers()?)
}

/// Writes the files and prints: all that a run of the command leaves.
fn publish(arguments: &ValidateLocalArguments, case: &Case, comparison: &Comparison) -> Result<(), Failure> {
    let report = case.report(comparison);
    write_rows("--csv", arguments.csv.as_deref(), || report.rows())?;
    if let Some(path) = &arguments.html {
        write_file("--html", path, report.page().as_bytes())?;
    }
    if arguments.json {
        return print_json(&report.document());
    }
    print_text(&report.text())
}
