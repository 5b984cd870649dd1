//! Measurements of others, read into a cluster that is otherwise kept.

use std::path::{Path, PathBuf};

use quadrille_measure::logs::Job;
use quadrille_report::import::ImportReport;
use quadrille_run::described;

use super::arguments::{CalibrateArguments, ImportArguments};
use super::{warn, write};
use crate::device::Named;
use crate::failure::Failure;
use crate::output::{print_json, print_text};
use crate::paths;

/// Reads all logs, then all steps, and writes the cluster.
pub fn run(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let CalibrateArguments { import, out, .. } = arguments;
    let device = arguments.device.device != Named::Cpu;
    for (flag, typed) in [("--quick", arguments.quick), ("--runs", arguments.runs.is_some()), ("--device", device)] {
        if typed {
            return Err(Failure::usage(format!("{flag}: nothing is measured here where logs are read; leave it out")));
        }
    }
    let Some(name) = &import.cluster else {
        return Err(Failure::usage("logs are read into a cluster; name one with --cluster"));
    };
    paths::check(&[("--out", out)], &read_files(import))?;
    let mut cluster = described::cluster(name)?;
    let job = Job { ranks: arguments.ranks.map(usize::from), per_node: arguments.per_node.map(usize::from) };
    let imported = import.spec(job).read_into(&mut cluster)?;
    let report = ImportReport(&imported);
    let logs = [("nccl-tests", import.from_nccl_tests.len()), ("OSU benchmarks", import.from_osu.len())];
    cluster.source = report.source(&cluster.source, &logs);
    write(out, &cluster)?;
    let warnings = warn(report.warnings());
    if arguments.json {
        return print_json(&report.document(out, warnings));
    }
    print_text(report.text() + format!("written to {}\n", out.display()))
}

/// What must not be written over.
fn read_files(import: &ImportArguments) -> Vec<(&'static str, &Path)> {
    fn named<'a>(flag: &'static str, paths: &'a [PathBuf]) -> impl Iterator<Item = (&'static str, &'a Path)> {
        paths.iter().map(move |path| (flag, path.as_path()))
    }
    // A cluster or a model is a preset's name or a file.
    let cluster = import.cluster.iter().map(|name| ("--cluster", name));
    let steps = import.from_step.chunks(3).flat_map(|step| step.iter().take(2)).map(|path| ("--from-step", path));
    let described = cluster.chain(steps).map(|(flag, path)| (flag, Path::new(path)));
    named("--from-nccl-tests", &import.from_nccl_tests)
        .chain(named("--from-osu", &import.from_osu))
        .chain(described.filter(|(_, path)| path.is_file()))
        .collect()
}
