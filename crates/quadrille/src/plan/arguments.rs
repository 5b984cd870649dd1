//! The flags of `quadrille plan` and their help.

use std::path::PathBuf;

use clap::{Arg, Args, ValueEnum};
use quadrille_spec::ElementType;

use super::atp::AtpArguments;
use super::lbnl::LbnlArguments;
use super::native::arguments::{DOCUMENT, QuestionArguments, ResultArguments};
use crate::arguments::ModelArguments;
use crate::layout_arguments::LayoutArguments;
use crate::layout_flags::searched;
use crate::parse::whole;
use crate::quantities::Counts;

/// The cost models of `plan`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cost {
    /// Seconds and bytes of every operation and collective of a step, for every layout.
    Native,
    /// AxoNN's communication model (SC24, section V-B, equations 1-7).
    Axonn,
    /// LBNL's model of steps (arXiv 2410.00273), as its authors' code computes it.
    Lbnl,
    /// Megatron-LM's takeaways (SC21, sections 3.2-3.4): one configuration, with the reason of each of its sizes.
    Megatron,
    /// ATP's communication time of two-dimensional meshes on an interconnect (Cheng et al., equations 2-4).
    Atp,
}

#[derive(Debug, Args)]
#[command(
    allow_negative_numbers = true,
    after_long_help = DOCUMENT,
    mut_arg("layout", layout_help),
    mut_arg("model", model_help),
    mut_arg("cluster", cluster_help),
    mut_arg("global_batch", batch_help),
    mut_args(searched)
)]
pub struct PlanArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// A whole request as a TOML or JSON file, a line per option (global_batch = 1536, max = { pipe = 16 }); options win over it
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// The cost model
    #[arg(long, value_enum, default_value_t = Cost::Native)]
    pub cost: Cost,
    /// Number of GPUs; with --pareto or --days a list or a range, e.g. 64,96 or 64..1024 (doubled from the first) or 64..1024:9 (so
    /// many, with equal ratios) [default: --ranks, or 1024]
    #[arg(long, value_name = "N|RANGE")]
    pub gpus: Option<Counts>,
    /// Number of nodes (hosts) whose GPUs are all used, in place of --gpus: as many times the cluster's GPUs of a node, or --per-node
    #[arg(long, value_name = "N|RANGE")]
    pub nodes: Option<Counts>,
    /// GPUs of a fast domain, e.g. --nvs 8 [default: the cluster's own]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1 << 24))]
    pub nvs: Option<u32>,
    /// Type of the values: f32, f64, bf16 or f16 with --framework quadrille [default: f32]; of those that are sent with --cost
    /// axonn or atp [default: bf16]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// How many of the best to show [default: 10]
    #[arg(long, value_name = "K", value_parser = whole::<u32>(1..))]
    pub top: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write the ranking to this file, in place of what it holds; with --cost lbnl in the columns of the tables that
    /// LBNL's code writes
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Search (--cost native)")]
    pub question: QuestionArguments,
    #[command(flatten, next_help_heading = "Results (--cost native)")]
    pub results: ResultArguments,
    #[command(flatten, next_help_heading = "Only with --cost lbnl")]
    pub lbnl: LbnlArguments,
    #[command(flatten, next_help_heading = "Only with --cost atp")]
    pub atp: AtpArguments,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
}

fn layout_help(argument: Arg) -> Arg {
    argument.help(
        "A layout as a TOML file, of which all but its type counts; of its grid the number of ranks, and with --cost axonn \
         the order",
    )
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt3-175b, with --cost axonn gpt-demo, with lbnl gpt3-1t]")
}

fn cluster_help(argument: Arg) -> Arg {
    argument.help(
        "Cluster preset or TOML file: what layouts are chosen for. With --cost lbnl one of the paper's systems: a100, h200, \
         b200, b200-next; with megatron one that names its device [default: selene, with --cost axonn local]",
    )
}

fn batch_help(argument: Arg) -> Arg {
    argument.help("Sequences in a step [default: 2 x ranks; with --cost lbnl 4096, with atp 4]")
}
