//! Flags of `quadrille validate local`.

use std::path::PathBuf;

use clap::{Arg, Args};
use quadrille_spec::{Axis, ElementType};

use crate::arguments::{ModelArguments, RunArguments};
use crate::device::DeviceArguments;
use crate::layout_arguments::LayoutArguments;
use crate::parse::whole;

/// Every layout's step time as the native model predicts it and as the ranks of this machine measure it on random
/// samples: errors, and how well the predicted order is the measured one (the ten best, Kendall's tau, what the first
/// choice costs beyond the best). Layouts run one after the other, in an order shuffled by --seed.
#[derive(Debug, Args)]
#[command(
    allow_negative_numbers = true,
    after_help = EXAMPLES,
    mut_arg("grid", hidden),
    mut_arg("cluster", cluster_help),
)]
pub struct ValidateLocalArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Every legal grid of --ranks ranks over --axes: what is done without --layouts
    #[arg(long, conflicts_with = "layouts")]
    pub all_grids: bool,
    /// So many of the legal grids, chosen by --seed, each as likely as any other; all where there are not more
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub layouts: Option<usize>,
    /// The axes over which grids are taken, e.g. --axes x,y,pipe [default: x,y,z,data]
    #[arg(long, value_name = "AXES", value_delimiter = ',')]
    pub axes: Option<Vec<Axis>>,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Steps of each layout; the first two do not count
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<u64>(..))]
    pub steps: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write a row for every layout to this file, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Write a page to this file, in place of what it holds: measured against predicted times, the parts of each step, the
    /// table
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub device: DeviceArguments,
}

const EXAMPLES: &str = "Examples:
  quadrille validate local --model gpt-tiny --ranks 4 --html local.html
  quadrille validate local --ranks 4 --cluster measured.toml --csv layouts.csv      on a cluster file with device and tiers
  quadrille validate local --ranks 4 --cluster gpus.toml --device cuda --dtype bf16      steps on GPUs
  quadrille validate local --ranks 8 --axes x,y,z,context,data,pipe --layouts 20 --microbatch 1 --schedule zb-h1";

/// A flag that other commands have.
fn hidden(argument: Arg) -> Arg {
    argument.hide(true)
}

fn cluster_help(argument: Arg) -> Arg {
    argument.help(
        "Cluster preset or TOML file with a device, which is a rank, and tiers: what steps are predicted for [default: \
         local, a machine of assumed rates; with a --device it has to be named]",
    )
}
