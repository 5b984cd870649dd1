//! `quadrille paper atp`: the meshes of an interconnect's devices, ranked by ATP's communication time.

use std::path::{Path, PathBuf};

use clap::{Arg, Args, Subcommand};
use quadrille_papers::atp::{
    AllReduce, Counts, Interconnect, KnownBandwidths, PUBLISHED_BATCH, Search, check_described,
};
use quadrille_papers::reproduce::ATP;
use quadrille_report::papers::atp::AtpReport;
use quadrille_run::described;
use quadrille_spec::ElementType;
use quadrille_spec::quantities::{self, BatchSize};

use super::reproduce::{self, ReproduceArguments};
use super::sequences;
use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text, write_rows};
use crate::parse::whole;
use crate::{documents, paths};

/// The commands of ATP's model.
#[derive(Debug, Subcommand)]
pub enum AtpCommand {
    /// Rank the meshes of an interconnect's devices by the seconds of communication in a step, without its computation
    Plan(AtpPlanArguments),
    /// Compare the figures of the paper with ours
    Reproduce(ReproduceArguments),
}

const EXAMPLES: &str = "Examples:
  quadrille paper atp plan --interconnect ic2
  quadrille paper atp plan --interconnect nodes.toml --model gpt2-124m --csv meshes.csv";

/// The search of an interconnect's meshes.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES, mut_arg("model", model_help))]
pub struct AtpPlanArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// The interconnect: figure-7a or ic1 to ic6 of the paper, or a TOML file of name, source and tables `layers` from the
    /// outermost to that of devices, each with the matrix p2p and the list group in bytes/s
    #[arg(long, value_name = "NAME|FILE")]
    pub interconnect: String,
    /// Elements of equation 2: paper (14h/d1 and 4h/d2, as published) or exact (12h/d1 and 4h/d2: a backward pass reduces
    /// over the other dimension) [default: paper]
    #[arg(long, value_name = "NAME")]
    pub counts: Option<Counts>,
    /// Bandwidth of an all-reduce on a link: rabenseifner (equation 4) or links (all of the link's, as section 5.3 argues)
    /// [default: rabenseifner]
    #[arg(long, value_name = "NAME")]
    pub all_reduce: Option<AllReduce>,
    /// Sequences in a step, or tokens, e.g. 8k [default: 4]
    #[arg(long, value_name = "N|TOKENS", value_parser = quantities::batch)]
    pub global_batch: Option<BatchSize>,
    /// Type of the values that are sent: f32, f64, bf16 or f16
    #[arg(long, value_name = "TYPE", default_value_t = ElementType::Bf16)]
    pub dtype: ElementType,
    /// Number of the fastest meshes to show
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = whole::<u32>(1..))]
    pub top: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write the ranking to this file, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt3-175b]")
}

/// Runs a command of ATP's model.
pub fn run(command: &AtpCommand) -> Result<(), Failure> {
    match command {
        AtpCommand::Plan(arguments) => plan(arguments),
        AtpCommand::Reproduce(arguments) => reproduce::run(&[ATP], arguments),
    }
}

/// Ranks meshes and prints the best.
fn plan(arguments: &AtpPlanArguments) -> Result<(), Failure> {
    let search = search(arguments)?;
    let interconnect = ("--interconnect", Path::new(&arguments.interconnect));
    let read: Vec<_> = paths::of_model(&arguments.model).chain([interconnect]).collect();
    paths::check_ready(&paths::asked([("--csv", &arguments.csv)]), &read)?;
    let found = search.run(arguments.top as usize).map_err(|error| Failure::Usage(error.into()))?;
    let report = AtpReport { search: &search, found: &found };
    write_rows("--csv", arguments.csv.as_deref(), || report.rows())?;
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// The interconnect of a preset or a file.
fn interconnect(name: &str) -> Result<Interconnect, Failure> {
    if !described::names_file(name) {
        return Ok(Interconnect::preset(name)?);
    }
    let text = documents::INTERCONNECT.text(Path::new(name))?;
    Interconnect::from_toml(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// The search of a model's meshes.
fn search(arguments: &AtpPlanArguments) -> Result<Search, Failure> {
    let name = &arguments.interconnect;
    let interconnect = interconnect(name)?;
    let all_reduce = match (&interconnect.bandwidths, arguments.all_reduce) {
        (KnownBandwidths::Matrix(_), typed) => Some(typed.unwrap_or(AllReduce::Rabenseifner)),
        (KnownBandwidths::Calibrated(_), None) => None,
        (KnownBandwidths::Calibrated(_), Some(_)) => {
            return Err(Failure::usage(format!(
                "--all-reduce: the bandwidths of {name} were measured with all-reduces; leave it out"
            )));
        }
    };
    let model = arguments.model.described("gpt3-175b")?;
    check_described(&model)?;
    let batch = match arguments.global_batch {
        Some(batch) => sequences(batch, model.seq_len)?,
        None => PUBLISHED_BATCH,
    };
    if !(1..=1 << 24).contains(&batch) {
        return Err(Failure::usage(format!("--global-batch {batch}: it is 1 to 2^24; give a number in between")));
    }
    let element_bytes = arguments.dtype.bytes();
    let counts = arguments.counts.unwrap_or(Counts::Paper);
    Ok(Search { model, interconnect, batch, element_bytes, counts, all_reduce })
}
