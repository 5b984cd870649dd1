//! `quadrille paper megatron`: the configuration that Megatron-LM's takeaways recommend, and why.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand};
use quadrille_papers::megatron::{Machine, Plan, known_device};
use quadrille_papers::reproduce::MEGATRON;
use quadrille_report::papers::megatron::MegatronReport;
use quadrille_run::described;
use quadrille_spec::quantities::{self, BatchSize};

use super::reproduce::{self, ReproduceArguments};
use super::sequences;
use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text, write_rows};
use crate::parse::whole;
use crate::paths;

/// The commands of Megatron-LM's takeaways.
#[derive(Debug, Subcommand)]
pub enum MegatronCommand {
    /// Recommend one configuration, with the reason of each of its sizes, in half precision and with recomputation of every layer
    Plan(MegatronPlanArguments),
    /// Compare the figures of the paper with ours
    Reproduce(ReproduceArguments),
}

const EXAMPLES: &str = "Examples:
  quadrille paper megatron plan --cluster selene --gpus 1024 --global-batch 1536
  quadrille paper megatron plan --cluster selene --gpus 512 --global-batch 1536 --per-node 4";

/// The model and the machine that a configuration is recommended for.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES, mut_arg("model", model_help))]
pub struct MegatronPlanArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Cluster preset or TOML file that names its device, e.g. selene
    #[arg(long, value_name = "NAME|FILE")]
    pub cluster: String,
    /// Number of GPUs
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1 << 24))]
    pub gpus: usize,
    /// GPUs that share a node [default: the cluster's, or all]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub per_node: Option<usize>,
    /// Sequences in a step, or tokens, e.g. 4M
    #[arg(long, value_name = "N|TOKENS", value_parser = quantities::batch)]
    pub global_batch: BatchSize,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write the configuration to this file, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt3-175b]")
}

/// Runs a command of Megatron-LM's takeaways.
pub fn run(command: &MegatronCommand) -> Result<(), Failure> {
    match command {
        MegatronCommand::Plan(arguments) => plan(arguments),
        MegatronCommand::Reproduce(arguments) => reproduce::run(&[MEGATRON], arguments),
    }
}

/// Recommends and prints.
fn plan(arguments: &MegatronPlanArguments) -> Result<(), Failure> {
    let cluster = paths::of_cluster(&arguments.cluster);
    let read: Vec<_> = paths::of_model(&arguments.model).chain(cluster).collect();
    paths::check_ready(&paths::asked([("--csv", &arguments.csv)]), &read)?;
    let (plan, cluster) = recommended(arguments)?;
    let report = MegatronReport { plan: &plan, cluster: &cluster };
    write_rows("--csv", arguments.csv.as_deref(), || report.rows())?;
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// The recommended configuration, and the name of the cluster.
fn recommended(arguments: &MegatronPlanArguments) -> Result<(Plan, String), Failure> {
    let MegatronPlanArguments { gpus, per_node, global_batch, .. } = arguments;
    let cluster = described::cluster(&arguments.cluster)?;
    let (device, device_memory) = known_device(&cluster)?;
    let per_node = per_node.unwrap_or_else(|| cluster.per_node(*gpus));
    cluster.network_for(*gpus, per_node)?;
    let model = arguments.model.described("gpt3-175b")?;
    let batch = sequences(*global_batch, model.seq_len)?;
    let machine = Machine { devices: *gpus, per_node, device_memory };
    Ok((Plan::new(model, device, machine, batch)?, cluster.name))
}
