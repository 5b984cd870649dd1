//! `quadrille calibrate`: a cluster file from what this machine, or another's log, says.

pub mod arguments;
mod file;
mod import;
mod report;

use quadrille_measure::calibration::CalibrationSpec;
use quadrille_report::calibration::CalibrationReport;
use quadrille_run::LayoutDefaults;

use self::arguments::CalibrateArguments;
use crate::failure::Failure;
use crate::files;
use crate::launch::Launch;

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
        files::check_writable("--out", &arguments.out)?;
    }
    let measured = spec(arguments, launch)?.measure()?;
    if !launch.is_first() {
        return Ok(());
    }
    let fitted = measured.fitted()?;
    let cluster = measured.cluster(&fitted)?;
    file::write(&arguments.out, &cluster)?;
    report::print(arguments, &CalibrationReport { measured: &measured, fitted: &fitted, cluster: &cluster })
}

/// Of the flags, held against what was started where ranks are processes.
fn spec(arguments: &CalibrateArguments, launch: &Launch) -> Result<CalibrationSpec, Failure> {
    let cores = quadrille_run::cores();
    let usual = LayoutDefaults { ranks: cores.clamp(2, 512), ..LayoutDefaults::USUAL };
    let LayoutDefaults { ranks: started, per_node: placed, .. } = launch.defaults(&usual)?;
    let ranks = arguments.ranks.map_or(started, usize::from);
    launch.check_ranks(ranks)?;
    let per_node = arguments.per_node.map(usize::from).or(placed).unwrap_or(ranks);
    if let Some(placed) = placed.filter(|placed| *placed != per_node) {
        return Err(Failure::usage(format!(
            "--per-node {per_node}: the launcher put {placed} ranks on a node; leave it out"
        )));
    }
    Ok(CalibrationSpec {
        per_node,
        threads: usize::from(arguments.threads),
        runs: arguments.runs.map_or(if arguments.quick { 3 } else { 7 }, usize::from),
        quick: arguments.quick,
        ranks_here: launch.ranks_here(ranks),
        world: launch.world.clone(),
        ..CalibrationSpec::new(ranks, cores)
    })
}
