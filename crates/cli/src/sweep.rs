//! `quadrille sweep`: the best layout for every value of one or two numbers.

use std::path::PathBuf;

use clap::Args;
use quadrille_pages::sweep_page;
use quadrille_plan::native::sweep::{Sweep, Variable};
use quadrille_plan::native::{Cancel, Question};
use quadrille_report::sweep::SweepReport;
use quadrille_report::sweep_text;
use quadrille_spec::Field;

use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::layout_flags::searched;
use crate::output::{csv, json_value, print_text, write_file, written};
use crate::parse::whole;
use crate::plan::arguments::set_help;
use crate::plan::question::QuestionArguments;
use crate::plan::request::{print_sources, request, set_devices};
use crate::{bars, flags, paths, terminal};

/// Searches the best layout, as `plan` does, for every value of one number, or every pair of values of two. A terminal gets a
/// table; a pipe, or the file of --out, comma-separated values with the fields of `plan --json`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES, mut_arg("set", set_help), mut_args(searched))]
pub struct SweepArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// What to vary: gpus, nodes, nvs (GPUs of a fast domain), batch, seq-len or a number of the cluster (device.memory_bandwidth,
    /// device.peak.half, tiers.1.bandwidth, ...); values as a list, a range that doubles (64..4096) or a range with so many
    /// values (1e12..8e12:5). Once or twice
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    pub vary: Vec<String>,
    /// Number of GPUs, unless it varies [default: --ranks, or 1024]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1 << 24))]
    pub gpus: Option<u32>,
    /// Number of nodes whose GPUs are all used, in place of --gpus
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1 << 24))]
    pub nodes: Option<u32>,
    /// GPUs of a fast domain, unless they vary [default: the cluster's own]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1 << 24))]
    pub nvs: Option<u32>,
    /// Write the values to this file, in place of what it holds [default: standard output]
    #[arg(long, value_name = "FILE.csv")]
    pub out: Option<PathBuf>,
    /// Write a page to this file, in place of what it holds: times, speed and memory over what varies, the parts of each step, the
    /// table. It opens in any browser, without a network
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Search")]
    pub question: QuestionArguments,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
}

const EXAMPLES: &str = "Examples:
  quadrille sweep --vary gpus=64..4096 --model gpt3-175b --cluster selene --global-batch 1536 --html scaling.html
  quadrille sweep --vary gpus=1024..16384 --vary nvs=4,8,64 --tokens 1e12 --global-batch 4096 --html domains.html
  quadrille sweep --vary device.memory_bandwidth=1e12..8e12:5 --gpus 256 --out bandwidth.csv";

/// Searches all points and writes what was found.
pub fn run(arguments: &SweepArguments) -> Result<(), Failure> {
    let (sweep, report) = swept(arguments, &Cancel::default())?;
    if !sweep.variables().any(Variable::is_length) {
        arguments.layout.note_length(&arguments.model, sweep.question.seq_len)?;
    }
    match &arguments.out {
        Some(path) => write_file("--out", path, csv(report.rows()?)?.as_bytes())?,
        None if terminal::is_for_people() => print_text(sweep_text(&report).map(flags::spelled))?,
        None => print_text(csv(report.rows()?)?)?,
    }
    written([&arguments.out, &arguments.html]);
    Ok(())
}

/// Searches all points until that is cancelled, and draws what was found; the table, its header first.
pub fn rows(arguments: &SweepArguments, cancel: &Cancel) -> Result<Vec<Vec<String>>, Failure> {
    Ok(swept(arguments, cancel)?.1.rows()?)
}

fn swept(arguments: &SweepArguments, cancel: &Cancel) -> Result<(Sweep, SweepReport), Failure> {
    let variables = arguments.vary.iter().map(|text| text.parse()).collect::<Result<Vec<Variable>, _>>()?;
    let (first, second) = match variables.as_slice() {
        [first] => (first, None),
        [first, second] => (first, Some(second)),
        _ => return Err(Failure::usage("--vary: at most two numbers vary; fix the others")),
    };
    let files = paths::asked([("--out", &arguments.out), ("--html", &arguments.html)]);
    let read: Vec<_> = paths::described(&arguments.model, &arguments.layout).collect();
    paths::check_ready(&files, &read)?;
    let question = Question { cancel: cancel.clone(), ..fixed(arguments, &variables)? };
    let sweep = bars::counting(|watch| Sweep::watched(question, first.clone(), second.cloned(), watch))?;
    let mut report = SweepReport::new(&sweep)?;
    let reasons = report.points.iter_mut().filter_map(|point| point.reason.as_mut());
    reasons.for_each(|reason| *reason = flags::spelled(reason));
    if let Some(path) = &arguments.html {
        write_file("--html", path, sweep_page(&json_value(&report)?).as_bytes())?;
    }
    Ok((sweep, report))
}

/// The question without what varies. Numbers of GPUs that vary are known first, since the default batch follows from the largest,
/// unless it varies.
fn fixed(arguments: &SweepArguments, variables: &[Variable]) -> Result<Question, Failure> {
    let SweepArguments { model, layout, question, .. } = arguments;
    let mut request = request(model, layout, question, None)?;
    let count = |count: Option<u32>| count.map(|count| count as usize).into_iter().collect::<Vec<_>>();
    let gpus = count(arguments.gpus);
    let nodes = count(arguments.nodes);
    if let Some(varied) = variables.iter().find(|variable| variable.is_devices()) {
        if !gpus.is_empty() || !nodes.is_empty() || layout.ranks.is_some() {
            let rule = "their number is varied; leave --gpus, --nodes and --ranks out";
            return Err(Failure::usage(format!("--vary {varied}: {rule}")));
        }
        let values = varied.values().iter().map(|value| *value as usize).collect();
        if varied.is_nodes() { request.nodes = values } else { request.gpus = values }
    } else {
        set_devices(&mut request, gpus, nodes)?;
    }
    request.nvs = arguments.nvs.map(|devices| devices as usize);
    // Of a batch that varies the largest is held against the rules.
    let batch = variables.iter().find(|variable| variable.is_batch());
    if let Some(batch) = batch.and_then(|varied| varied.values().last()) {
        request.choices = request.choices.with(Field::GlobalBatch, (*batch as usize).into());
    }
    let question = request.question()?;
    print_sources(model, layout);
    Ok(question)
}
