//! `quadrille calibrate`: a cluster file from what this machine, or another's log, says.

pub mod arguments;
mod import;

use std::path::Path;

use quadrille_measure::calibration::CalibrationSpec;
use quadrille_report::calibration::CalibrationReport;
use quadrille_spec::Cluster;

use self::arguments::CalibrateArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{check_writable, print_json, print_text, remark, write_file};
use crate::{bars, flags};

/// Measures, or reads logs, and writes the cluster.
pub fn run(arguments: &CalibrateArguments, launch: &Launch) -> Result<(), Failure> {
    if arguments.import.any() {
        // One reads for all.
        return if launch.is_first() { import::run(arguments) } else { Ok(()) };
    }
    if arguments.import.cluster.is_some() {
        return Err(Failure::usage(
            "--cluster: it is what logs are read into; give --from-nccl-tests, --from-osu or --from-step, or leave it out",
        ));
    }
    // Measuring takes its time: a file that cannot be written is found before.
    if launch.is_first() {
        check_writable("--out", &arguments.out)?;
    }
    let spec = spec(arguments, launch)?;
    let measured = if launch.is_first() { bars::measuring(|told| spec.measure(told))? } else { spec.measure(&|_| ())? };
    if !launch.is_first() {
        return Ok(());
    }
    let fitted = measured.fitted()?;
    let cluster = measured.cluster(&fitted)?;
    write(&arguments.out, &cluster)?;
    print(arguments, &CalibrationReport { measured: &measured, fitted: &fitted, cluster: &cluster })
}

/// Writes the cluster in place of what the file holds, whole or not at all.
fn write(path: &Path, cluster: &Cluster) -> Result<(), Failure> {
    write_file("--out", path, cluster.to_toml()?.as_bytes())
}

/// Prints the report; warnings go to standard error, too.
fn print(arguments: &CalibrateArguments, report: &CalibrationReport) -> Result<(), Failure> {
    let warnings = warn(report.warnings());
    if !arguments.json {
        return print_text(report.text() + format!("\nwritten to {}\n", arguments.out.display()));
    }
    print_json(&report.document(&arguments.out, warnings))
}

/// Says what is to be minded on standard error; returns it in the words of the command line.
fn warn(warnings: Vec<String>) -> Vec<String> {
    let warnings: Vec<String> = warnings.iter().map(|warning| flags::spelled(warning)).collect();
    warnings.iter().for_each(|warning| remark("warning", warning));
    warnings
}

/// Of the flags, held against what was started where ranks are processes.
fn spec(arguments: &CalibrateArguments, launch: &Launch) -> Result<CalibrationSpec, Failure> {
    let [ranks, per_node] = [arguments.ranks, arguments.per_node].map(|number| number.map(usize::from));
    let usual = CalibrationSpec::on(launch, ranks, per_node)?;
    Ok(CalibrationSpec {
        threads: arguments.threads.map_or(usual.threads, usize::from),
        runs: arguments.runs.map_or(if arguments.quick { 3 } else { 7 }, usize::from),
        quick: arguments.quick,
        ..usual
    })
}
