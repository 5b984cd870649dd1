//! The flags of `quadrille plan` and their help.

use std::path::PathBuf;

use clap::{Arg, Args};
use quadrille_plan::native::part_of;
use quadrille_spec::ElementType;

use super::question::QuestionArguments;
use crate::arguments::ModelArguments;
use crate::layout_arguments::LayoutArguments;
use crate::layout_flags::searched;
use crate::parse::whole;
use crate::quantities::Counts;

#[derive(Debug, Args)]
#[command(
    allow_negative_numbers = true,
    after_long_help = DOCUMENT,
    mut_arg("layout", layout_help),
    mut_arg("model", model_help),
    mut_arg("set", set_help),
    mut_arg("cluster", cluster_help),
    mut_args(searched)
)]
pub struct PlanArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// A whole request as a TOML or JSON file, a line per option (global_batch = 1536, max = { pipe = 16 }); options win over it
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
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
    /// Type of the values: f32, f64, bf16 or f16 with --framework quadrille [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Number of layouts to show [default: 10]
    #[arg(long, value_name = "K", value_parser = whole::<u32>(1..))]
    pub top: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write the ranking to this file, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Search")]
    pub question: QuestionArguments,
    #[command(flatten, next_help_heading = "Results")]
    pub results: ResultArguments,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
}

fn layout_help(argument: Arg) -> Arg {
    argument.help("A layout as a TOML file, of which all but its type counts; of its grid the number of ranks")
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt3-175b]")
}

/// Help of `--set` where nothing is trained.
pub fn set_help(argument: Arg) -> Arg {
    argument.help("Replace a field of the model, e.g. --set layers=4 --set hidden=4096")
}

fn cluster_help(argument: Arg) -> Arg {
    argument.help("Cluster preset or TOML file: what layouts are chosen for [default: selene]")
}

/// Output of the search.
#[derive(Debug, Args)]
pub struct ResultArguments {
    /// Show variants of a layout too, which differ in neither its grid nor the spreading of experts; else the best of them alone,
    /// and how many there are
    #[arg(long)]
    pub variants: bool,
    /// Show the layouts than which none has fewer devices, less time and less memory, in steps of a 32nd of a device: over all
    /// divisors of --gpus, or over a list or range of them
    #[arg(long)]
    pub pareto: bool,
    /// Advise the fastest layout, however unusual; else the simplest of those whose predicted times do not differ from it by
    /// more than 3%
    #[arg(long)]
    pub exotic: bool,
    /// Part of the fastest step time by which a simpler layout may be slower and still be recommended [default: 3%]
    #[arg(long, value_name = "PERCENT", value_parser = tolerance, conflicts_with = "exotic")]
    pub tolerance: Option<f64>,
    /// Explain the advised layout: what binds, what faster hardware or another choice would give, why the next one lost, and
    /// what was refused by which rule
    #[arg(long)]
    pub explain: bool,
    /// Write the advised layout to this file, in place of what it holds; --layout of every command reads it
    #[arg(long, value_name = "FILE.toml")]
    pub out: Option<PathBuf>,
    /// Write a page of all this to this file, with charts, explanations and the flags of each framework; it opens in a browser
    /// without a network; of one number of GPUs
    #[arg(long, value_name = "FILE.html", conflicts_with = "pareto")]
    pub html: Option<PathBuf>,
}

/// Reads a part of a time in per cent.
fn tolerance(text: &str) -> Result<f64, String> {
    part_of(text).map_err(str::to_owned)
}

/// The fields of `plan --json`, and examples.
pub const DOCUMENT: &str = "Examples:
  quadrille plan --model gpt3-175b --gpus 1024 --cluster selene --global-batch 1536
  quadrille plan --gpus 512 --fix pipe=8,schedule=interleaved --memory-reserve 5% --explain
  quadrille plan --model llama2-7b --gpus 64 --framework fsdp --fix x=1,y=1,pipe=1 --out layout.toml
  quadrille plan --model llama3-70b --gpus 64 --cluster dgx-h100 --products fp8 --gradients bf16
  quadrille plan --model mixtral-8x7b --gpus 64 --imbalance 1.3
  quadrille plan --model llama3-8b --gpus 64 --cluster dgx-h100 --html plan.html
  quadrille plan --model llama3-8b --gpus 64 --cluster dgx-h100 --flops-convention megatron
  quadrille plan --gpus 64..1024 --pareto --global-batch 1536 --tokens 300e9 --price-per-hour 2

Fields of --json (times in seconds, sizes in bytes):
  model, cluster, framework, sparsity (null: not pruned), gpus, global_batch, seq_len
  planned       the table [planned] of layout files: framework, and of its numbers the types that
                were asked for
  imbalance     how many times the mean of the rows of experts the fullest rank has that is priced;
                of a run by how many ranks share experts
  device_memory_bytes, reserved_bytes
                of a device (null: not known), and what --memory-reserve keeps free
  counts        grids, legal_grids; configurations (of legal grids), legal, priced, fitting, and
                those left out by bounds: too_large (memory), too_slow (time);
                legal = priced + too_large + too_slow unless stopped
  refusals      rule, grids, configurations, example
  seconds       of the search; stopped: whether --search-limit ended it; too_long: layouts that it
                left without a price, for they have so many passes or blocks
  plans         fastest first: notation, layout (the fields of a layout file), devices, time_s, parts_s,
                memory_bytes, memory (of the rank that needs most, by class, and its stage),
                flops_convention (of model_flops, tflops_per_device and mfu), model_flops (of a step),
                executed_flops, tflops_per_device (10^12 a second), mfu, hfu, tokens_per_s; with
                --imbalance that of
                the layout; fitting_runs (the part of published runs that would fit, by what they
                took beside their tensors); variants (legal layouts of its grid and spreading
                of experts; not with --variants); with --goodput or --mtbf goodput (share of useful time, checkpoint_s,
                interval_steps, interval_s, failures_per_day); with --tokens days, device_hours,
                expected ones with goodput, and with --price-per-hour cost, currency
  failures      with goodput: mtbf_hours, checkpoint_bandwidth or checkpoint_s, restart_s
  within_days   with --days; with --pareto fewest_gpus that do
  advised       plan, the layout to run: the simplest of all that take at most the part tolerance
                longer than the fastest (0 with --exotic), without --memory-reserve among those that
                95% of runs fit into if there are any; gain_of_fastest: how much less the fastest of
                all takes; index of plan in plans (null: not among them)
  called_too_large
                ran, called_too_large: published runs of this device and kind of framework that ran,
                and those that this program calls too large (null: there are none)
  framework_differences
                parts of the advised layout that the framework has in another way or lacks, each
                with what it does instead
  error_band    of the advised plan, as of each of plans: low, middle, high (measured over predicted
                time of 1 of 10, of half, and of 9 of 10 published runs most like it), runs,
                runs_of_kind, sources, distance; null where fewer than two published runs are of its
                kind: generation of the device, framework, dense or experts, products, length;
                error_band_reason then says what there are no runs of
  origins       where each number of the hardware is from: measured, fitted, data_sheet or assumed
  assumed       fields that are, and gained_share: what a tenth more of them all is worth of a step;
                null with --search-limit where its prices take long
  pareto        with --pareto, likewise; stopped_gpus: the numbers of GPUs that --search-limit left
                incomplete
  explanation   with --explain: binding, sensitivities, changes, runner_up";
