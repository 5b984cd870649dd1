//! Measurements of others, read into a cluster that is otherwise kept.

mod log;
mod nccl_tests;
mod osu;
mod refit;
mod step;

use std::path::PathBuf;

use quadrille_cost::native::Framework;
use quadrille_spec::Cluster;
use serde_json::json;

use self::log::{Log, Placed};
use self::refit::Refit;
use self::step::{Scaled, Step};
use super::arguments::{CalibrateArguments, ImportArguments};
use super::file;
use crate::bench::percent;
use crate::failure::Failure;
use crate::output::{decimal, print_json, print_text, table};
use crate::{paths, settings};

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
    let mut cluster = settings::cluster(name)?;
    let refits = refit::refit(&mut cluster, &logs(arguments)?)?;
    let scaled = steps(import, &mut cluster)?;
    cluster.source = source(&cluster, import, &refits, scaled.as_ref());
    file::write(&arguments.out, &cluster)?;
    if arguments.json {
        return print_json(&json!({ "out": arguments.out, "tiers": refits, "steps": scaled }));
    }
    print_text(&format!("{}written to {}\n", text(&refits, scaled.as_ref()), arguments.out.display()))
}

/// What must not be written over.
fn read_files(import: &ImportArguments) -> Vec<(&'static str, &std::path::Path)> {
    fn named<'a>(
        flag: &'static str,
        paths: &'a [PathBuf],
    ) -> impl Iterator<Item = (&'static str, &'a std::path::Path)> {
        paths.iter().map(move |path| (flag, path.as_path()))
    }
    let layouts = import.from_step.chunks(3).filter_map(|step| step.get(1)).map(|path| ("--from-step", path.as_ref()));
    named("--from-nccl-tests", &import.from_nccl_tests)
        .chain(named("--from-osu", &import.from_osu))
        .chain(layouts)
        .collect()
}

fn logs(arguments: &CalibrateArguments) -> Result<Vec<Placed>, Failure> {
    let parse: [(&str, &[PathBuf], Parse); 2] = [
        ("--from-nccl-tests", &arguments.import.from_nccl_tests, nccl_tests::parse),
        ("--from-osu", &arguments.import.from_osu, osu::parse),
    ];
    let (ranks, per_node) = (arguments.ranks.map(usize::from), arguments.per_node.map(usize::from));
    let mut logs = Vec::new();
    for (flag, paths, parse) in parse {
        for path in paths {
            let log = parse(path, &log::read(flag, path)?)?;
            logs.push(log.place(path.display().to_string(), ranks, per_node)?);
        }
    }
    Ok(logs)
}

/// Reads a log.
type Parse = fn(&std::path::Path, &str) -> Result<Log, Failure>;

fn steps(import: &ImportArguments, cluster: &mut Cluster) -> Result<Option<Scaled>, Failure> {
    let read = |step: &[String]| match step {
        [model, layout, seconds] => Step::read(cluster, [model, layout, seconds]),
        _ => Err(Failure::usage("--from-step takes a model, a layout's file and seconds")),
    };
    let steps: Vec<Step> = import.from_step.chunks(3).map(read).collect::<Result<_, _>>()?;
    if steps.is_empty() {
        return Ok(None);
    }
    let framework = Framework::by_name(import.framework.as_deref().unwrap_or(Framework::MEGATRON.name))?;
    step::scale(cluster, &framework, &steps).map(Some)
}

/// What the cluster's source says from now on.
fn source(cluster: &Cluster, import: &ImportArguments, refits: &[Refit], scaled: Option<&Scaled>) -> String {
    let mut parts = vec![cluster.source.trim_end_matches('.').to_owned()];
    let tools = [("nccl-tests", import.from_nccl_tests.len()), ("OSU benchmarks", import.from_osu.len())];
    let tools: Vec<String> =
        tools.iter().filter(|(_, logs)| *logs > 0).map(|(tool, logs)| format!("{logs} logs of {tool}")).collect();
    for refit in refits {
        let (tier, error) = (&refit.after.name, percent(refit.error.mean));
        parts.push(format!("tier {tier} fitted to {}, mean error {error}", tools.join(" and ")));
    }
    if let Some(Scaled { factor, steps, .. }) = scaled {
        parts.push(format!("products times {factor:.4} to fit {} measured steps", steps.len()));
    }
    parts.join("; by quadrille calibrate: ")
}

fn text(refits: &[Refit], scaled: Option<&Scaled>) -> String {
    let mut text = String::new();
    if !refits.is_empty() {
        let rows: Vec<Vec<String>> = refits
            .iter()
            .flat_map(|refit| {
                let before = (&refit.before, "before", &refit.error_before);
                [before, (&refit.after, "fitted", &refit.error)].map(|(tier, when, error)| {
                    vec![
                        format!("{}, {when}", tier.name),
                        decimal(tier.links as f64 * tier.bandwidth * tier.efficiency, "B/s"),
                        format!("{:.2}", 1e6 * tier.latency),
                        decimal(tier.half_bytes, "B"),
                        error.samples.to_string(),
                        percent(error.mean),
                        percent(error.largest),
                    ]
                })
            })
            .collect();
        let header = ["tier", "rate", "latency us", "half bytes", "times", "mean error", "largest"];
        text += &(table(&header, &rows) + "\n");
    }
    if let Some(Scaled { factor, most_before, most, steps }) = scaled {
        let (before, now) = (percent(*most_before), percent(*most));
        text += &format!("products times {factor:.4}: at most {before} of the peak before, {now} now\n");
        let rows: Vec<Vec<String>> = steps
            .iter()
            .map(|step| {
                let seconds = [step.measured_seconds, step.seconds_before, step.seconds];
                let seconds = seconds.map(|seconds| format!("{seconds:.6}"));
                [step.step.clone()].into_iter().chain(seconds).collect()
            })
            .collect();
        text += &(table(&["step", "measured s", "before s", "now s"], &rows) + "\n");
    }
    text
}
