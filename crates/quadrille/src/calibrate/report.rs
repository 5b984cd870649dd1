//! Prints what was measured, and warns of what is to be minded.

use quadrille_measure::calibration::{CalibrationSpec, Measurements};
use quadrille_report::calibration::{CalibrationReport, MUCH};
use quadrille_run::units::percent;
use serde_json::{Map, Value, json};

use super::arguments::CalibrateArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text, remark};

/// Prints the report; warnings go to standard error, too.
pub fn print(arguments: &CalibrateArguments, report: &CalibrationReport) -> Result<(), Failure> {
    let warnings = warnings(report.measured);
    warn(&warnings);
    if !arguments.json {
        return print_text(&format!("{}\nwritten to {}\n", report.text(), arguments.out.display()));
    }
    let mut document = Map::from_iter([("out".to_owned(), json!(arguments.out))]);
    if let Value::Object(found) = report.document() {
        document.extend(found);
    }
    document.insert("warnings".to_owned(), json!(warnings));
    print_json(&document)
}

/// Says what is to be minded on standard error.
pub fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| remark("warning", warning));
}

fn warnings(measured: &Measurements) -> Vec<String> {
    let CalibrationSpec { ranks_here, threads, cores, .. } = measured.setup.spec;
    let noisy = measured.cases.iter().filter(|measured| measured.runs.spread > MUCH).count();
    let mut warnings = Vec::new();
    if noisy > 0 {
        warnings.push(format!(
            "the runs of {noisy} of {} measurements scatter by more than {}: leave the machine to itself, or use more --runs",
            measured.cases.len(),
            percent(MUCH)
        ));
    }
    if measured.setup.spec.crowding() > 1.0 {
        warnings.push(format!(
            "{ranks_here} ranks of {threads} threads share {cores} cores: what was measured is a rank's share of them"
        ));
    }
    warnings
}
