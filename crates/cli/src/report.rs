//! `quadrille report`: the folder of a run as one page.

use std::path::{Path, PathBuf};

use clap::Args;
use quadrille_pages::run_page;
use quadrille_report::plain;
use quadrille_report::run::{Prediction, Run, RunPage, RunReport};
use quadrille_run::{FILES, described};
use quadrille_spec::FlopsConvention;
use serde_json::Value;

use crate::failure::Failure;
use crate::layout_arguments::DEFAULT_CLUSTER;
use crate::output::{json_value, print_json, print_text, write_file};
use crate::{flags, paths};

/// Writes one page that shows a run: losses, gradient norms, learning rate, speed; what a step is spent on, what ranks send
/// and hold, measured beside predicted; events and checkpoints. Any browser shows it, without a network. The run may still be
/// going on.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArguments {
    /// The run's folder, as `train --out` writes it
    #[arg(value_name = "RUN_DIR")]
    pub run: PathBuf,
    /// Write the page to this file, in place of what it holds [default: report.html in the run's folder]
    #[arg(long, value_name = "FILE.html")]
    pub out: Option<PathBuf>,
    /// Cluster preset or TOML file with a device, which is a rank, and tiers: what the step is predicted for, e.g. one of
    /// `calibrate`. Of the preset `local`, a machine that nobody has measured, no step is predicted
    #[arg(long, value_name = "NAME|FILE", default_value = DEFAULT_CLUSTER)]
    pub cluster: String,
    /// Count the FLOPs of TFLOP/s as native (products and attention without causal discount), megatron (as Megatron-LM's log) or
    /// torchtitan (as its log) [default: native]
    #[arg(long, value_name = "NAME")]
    pub flops_convention: Option<FlopsConvention>,
    /// Print what the folder holds as one JSON document, and write no page
    #[arg(long, conflicts_with_all = ["out", "cluster"])]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  quadrille report runs/a                                   writes runs/a/report.html
  quadrille report runs/a --cluster here.toml --out a.html  steps predicted for a machine that calibrate has measured";

/// The page's name where none is given.
const PAGE: &str = "report.html";

/// What the run's folder holds.
pub fn document(arguments: &ReportArguments) -> Result<Value, Failure> {
    if arguments.out.is_some() {
        Err(Failure::usage("--out: a document is no page; leave it out"))
    } else {
        json_value(&RunReport::new(&read(arguments)?))
    }
}

fn read(arguments: &ReportArguments) -> Result<Run, Failure> {
    let run = Run::read(&arguments.run)?;
    Ok(Run { flops_convention: arguments.flops_convention.unwrap_or_default(), ..run })
}

/// Reads the run, prices its step, writes the page and says where it is.
pub fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    if arguments.json {
        return print_json(&document(arguments)?);
    }
    let path = arguments.out.clone().unwrap_or_else(|| arguments.run.join(PAGE));
    let of_run = FILES.map(|name| arguments.run.join(name));
    let cluster = Path::new(&arguments.cluster);
    let inputs = of_run.iter().map(|path| ("the run's", path.as_path()));
    let inputs = inputs.chain(cluster.is_file().then_some(("--cluster", cluster)));
    paths::check(&[("--out", &path)], &inputs.collect::<Vec<_>>())?;
    let cluster = described::cluster(&arguments.cluster)?;
    let run = read(arguments)?;
    let mut prediction = Prediction::of(&run, cluster);
    // The reason quotes files.
    prediction.times = prediction.times.map_err(|reason| plain::message(&flags::spelled(&reason)));
    write_file("--out", &path, run_page(&json_value(&RunPage::new(&run, &prediction))?).as_bytes())?;
    print_text(format!("{}\n", path.display()))
}
