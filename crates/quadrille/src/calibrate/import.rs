//! Measurements of others, read into a cluster that is otherwise kept.

use std::path::{Path, PathBuf};

use quadrille_cost::native::Framework;
use quadrille_measure::Refusal;
use quadrille_measure::logs::{self, Job, Log, Placed, Refit};
use quadrille_measure::step_fit::{self, Scaled, Step};
use quadrille_report::import::ImportReport;
use quadrille_run::described;
use quadrille_run::units::percent;
use quadrille_spec::{Cluster, Field, Layout, SpecError};
use serde_json::json;

use super::arguments::{CalibrateArguments, ImportArguments};
use super::{file, report};
use crate::documents;
use crate::failure::Failure;
use crate::output::{print_json, print_text};
use crate::paths;

/// A mean error after fitting that is warned of.
const MUCH: f64 = 0.3;
/// What is worse than before by less looks the same in a table.
const SHOWN: f64 = 1e-3;

/// Reads all logs, then all steps, and writes the cluster.
pub fn run(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let import = &arguments.import;
    for (flag, typed) in [("--quick", arguments.quick), ("--runs", arguments.runs.is_some())] {
        if typed {
            return Err(Failure::usage(format!("{flag}: nothing is measured here where logs are read; leave it out")));
        }
    }
    let Some(name) = &import.cluster else {
        return Err(Failure::usage("logs are read into a cluster; name one with --cluster"));
    };
    paths::check(&[("--out", &arguments.out)], &read_files(import))?;
    let mut cluster = described::cluster(name)?;
    let placed = placed(arguments, cluster.tiers.len())?;
    let refits = logs::refit(&mut cluster, &placed)?;
    let scaled = steps(import, &mut cluster)?;
    let report = ImportReport { refits: &refits, scaled: scaled.as_ref() };
    let logs = [("nccl-tests", import.from_nccl_tests.len()), ("OSU benchmarks", import.from_osu.len())];
    cluster.source = report.source(&cluster.source, &logs);
    file::write(&arguments.out, &cluster)?;
    let warnings: Vec<String> = refits.iter().filter_map(warning).collect();
    report::warn(&warnings);
    if arguments.json {
        let document = json!({ "out": arguments.out, "tiers": refits, "steps": scaled, "warnings": warnings });
        return print_json(&document);
    }
    print_text(&format!("{}written to {}\n", report.text(), arguments.out.display()))
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

/// All logs, with their places in a cluster of so many tiers.
fn placed(arguments: &CalibrateArguments, tiers: usize) -> Result<Vec<Placed>, Failure> {
    let parse: [(&[PathBuf], Parse); 2] =
        [(&arguments.import.from_nccl_tests, logs::nccl_tests), (&arguments.import.from_osu, logs::osu)];
    let job = Job { ranks: arguments.ranks.map(usize::from), per_node: arguments.per_node.map(usize::from) };
    let mut read = Vec::new();
    for (paths, parse) in parse {
        for path in paths {
            let bytes = documents::LOG.bytes(path)?;
            read.push((path.display().to_string(), parse(path, &String::from_utf8_lossy(&bytes))?));
        }
    }
    job.check(&read)?;
    let place = |(name, log): (String, Log)| Ok(log.place(name, job, tiers)?);
    read.into_iter().map(place).collect()
}

/// Of a tier that does not describe what was measured.
fn warning(refit: &Refit) -> Option<String> {
    let Refit { error_before, after, error, .. } = refit;
    let wrong = if error.mean > MUCH {
        format!("is above {}", percent(MUCH))
    } else if error.mean > error_before.mean + SHOWN {
        "is larger than before".to_owned()
    } else {
        return None;
    };
    let (tier, before, now) = (&after.name, percent(error_before.mean), percent(error.mean));
    Some(format!(
        "tier {tier}: the mean error after fitting {wrong} ({before} before, {now} now); are --ranks, --per-node and \
         --cluster those of the logs?"
    ))
}

/// Reads a log.
type Parse = fn(&Path, &str) -> Result<Log, Refusal>;

fn steps(import: &ImportArguments, cluster: &mut Cluster) -> Result<Option<Scaled>, Failure> {
    let read = |step: &[String]| match step {
        [model, layout, seconds] => read_step(cluster, [model, layout, seconds]),
        _ => Err(Failure::usage("--from-step takes a model, a layout's file and seconds")),
    };
    let steps: Vec<Step> = import.from_step.chunks(3).map(read).collect::<Result<_, _>>()?;
    if steps.is_empty() {
        return Ok(None);
    }
    let framework = Framework::by_name(import.framework.as_deref().unwrap_or(Framework::MEGATRON.name))?;
    Ok(Some(step_fit::scale(cluster, &framework, &steps)?))
}

/// Reads a model, a layout's file and the seconds of a step; refuses a layout without a grid or a batch.
fn read_step(cluster: &Cluster, [model, path, seconds]: [&str; 3]) -> Result<Step, Failure> {
    let name = format!("{model} {path}");
    let seconds = step_fit::seconds(&name, seconds)?;
    let model = described::model(model, &[])?;
    let file = described::layout_file(Path::new(path))?;
    let wrong = |error: SpecError| Failure::usage(format!("{path}: {error}"));
    if [Field::Grid, Field::GlobalBatch].iter().any(|field| file.get(*field).is_none()) {
        return Err(Failure::usage(format!("{path}: a measured step has a grid and a global_batch; add both")));
    }
    let mut request = file.request().map_err(wrong)?;
    request.per_node = request.per_node.or(Some(cluster.per_node(request.grid.ranks())));
    let layout = Layout::new(&model, &request).map_err(wrong)?;
    Ok(Step { name, model, layout, seconds })
}
