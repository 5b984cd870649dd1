//! `quadrille validate local`: steps of many layouts, predicted by the native model and measured on this machine.
//!
//! [`Case::new`] reads what was typed, [`Case::measure`] shows how far it is, [`publish`] alone prints and writes.

mod arguments;
mod case;
mod document;
mod figures;
mod text;

use quadrille_measure::local::Comparison;
use quadrille_report::drawing;

pub use self::arguments::ValidateLocalArguments;
use self::case::Case;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{csv, print_json, print_text, write_file};
use crate::{files, paths};

/// Predicts, measures, compares.
pub fn run(arguments: &ValidateLocalArguments, launch: &Launch) -> Result<(), Failure> {
    // Measuring takes its time: files that cannot be written are found before.
    let written = arguments.written();
    paths::check(&written, &paths::described(&arguments.model, &arguments.layout).collect::<Vec<_>>())?;
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
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, csv(document::rows(comparison))?.as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        let body = drawing::paragraph(&text::head(case))
            + &figures::scatter(comparison)
            + &figures::bars(comparison)
            + &drawing::paragraph(&text::summary(comparison))
            + &drawing::paragraph(&text::left_out(case, comparison));
        let title = format!("{} on {}: predicted and measured steps", case.local.model.name, case.local.cluster.name);
        let page = drawing::page(&title, &body, &text::table(comparison));
        write_file("--html", path, page.as_bytes())?;
    }
    if arguments.json {
        return print_json(&document::document(case, comparison));
    }
    print_text(&text::text(case, comparison))
}
