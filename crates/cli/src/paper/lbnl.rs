//! `quadrille paper lbnl`: every configuration of a strategy of the LBNL paper, ranked by the time of a step, and the
//! configurations of a table, priced as they stand, whether or not they fit.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Arg, Args, Subcommand};
use quadrille_papers::lbnl::{PUBLISHED_BATCH, Search, Shape, Strategy, System, TableError, price_table};
use quadrille_papers::reproduce::LBNL;
use quadrille_report::papers::lbnl::{LbnlReport, priced_rows, priced_table};
use quadrille_spec::Model;
use quadrille_spec::quantities::{self, BatchSize};

use super::reproduce::{self, ReproduceArguments};
use super::sequences;
use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::output::{self, print_json, print_text, write_file, write_rows};
use crate::parse::whole;
use crate::{documents, paths, terminal};

/// The commands of LBNL's model.
#[derive(Debug, Subcommand)]
pub enum LbnlCommand {
    /// Rank the configurations of a strategy that fit into a GPU's memory by the time of a step, in values of two bytes
    Plan(LbnlPlanArguments),
    /// Price the configurations of a CSV table, whether or not they fit, in seconds, GB of 1e9 bytes and TFLOP
    Estimate(LbnlEstimateArguments),
    /// Compare the figures of the paper and of its authors' code with ours
    Reproduce(ReproduceArguments),
}

const PLAN_EXAMPLES: &str = "Examples:
  quadrille paper lbnl plan --strategy 2d --cluster b200 --nvs 8 --gpus 16384
  quadrille paper lbnl plan --strategy 1d --cluster h200 --gpus 1024 --model vit-era5";

/// The search of a strategy's configurations.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = PLAN_EXAMPLES, mut_arg("model", model_help))]
pub struct LbnlPlanArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Sharding of blocks: 1d (heads and widths), 2d (these and the sequence) or summa (products in panels)
    #[arg(long, value_name = "NAME")]
    pub strategy: Strategy,
    /// System of the paper: a100, h200, b200 or b200-next
    #[arg(long, value_name = "NAME", value_parser = System::named)]
    pub cluster: System,
    /// Number of GPUs
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=1 << 24))]
    pub gpus: u64,
    /// GPUs of a fast domain, e.g. --nvs 8 [default: the system's own]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=1 << 24))]
    pub nvs: Option<u64>,
    /// Sequences in a step, or tokens, e.g. 4M [default: 4096]
    #[arg(long, value_name = "N|TOKENS", value_parser = quantities::batch)]
    pub global_batch: Option<BatchSize>,
    /// Number of the fastest configurations to show
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = whole::<u32>(1..))]
    pub top: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write the ranking to this file, in place of what it holds, in the columns of the tables that LBNL's code writes
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt3-1t]")
}

const ESTIMATE_EXAMPLES: &str = "Examples:
  quadrille paper lbnl plan --strategy 2d --cluster b200 --nvs 8 --gpus 1024 --csv best.csv
  quadrille paper lbnl estimate --csv best.csv";

/// The table of configurations and that of their prices, in the columns and units of the tables that LBNL's code writes.
#[derive(Debug, Args)]
#[command(after_help = ESTIMATE_EXAMPLES)]
pub struct LbnlEstimateArguments {
    /// Table to read: a header with strategy,model,gpu,nvs,dp,tp1,tp2,pp,microbatch,summa_nb,nvs_tp1,nvs_tp2,nvs_dp,nvs_pp
    /// in any order, then a configuration a line. A column global_batch counts [else: 4096], others do not
    #[arg(long, value_name = "FILE.csv")]
    pub csv: PathBuf,
    /// Write the priced table to this file, in place of what it holds [default: standard output, with rounded numbers on a
    /// terminal]
    #[arg(long, value_name = "FILE.csv")]
    pub out: Option<PathBuf>,
}

/// Runs a command of LBNL's model.
pub fn run(command: &LbnlCommand) -> Result<(), Failure> {
    match command {
        LbnlCommand::Plan(arguments) => plan(arguments),
        LbnlCommand::Estimate(arguments) => estimate(arguments),
        LbnlCommand::Reproduce(arguments) => reproduce::run(&[LBNL], arguments),
    }
}

/// Ranks configurations and prints the best.
fn plan(arguments: &LbnlPlanArguments) -> Result<(), Failure> {
    let (model, search) = search(arguments)?;
    let read: Vec<_> = paths::of_model(&arguments.model).collect();
    paths::check_ready(&paths::asked([("--csv", &arguments.csv)]), &read)?;
    let start = Instant::now();
    let found = search.run(arguments.top as usize);
    let seconds = start.elapsed().as_secs_f64();
    if found.candidates == 0 {
        return Err(Failure::usage(search.without_candidates()));
    }
    let report = LbnlReport { model: &model, search: &search, found: &found, seconds };
    write_rows("--csv", arguments.csv.as_deref(), || report.rows())?;
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// The model and its search.
fn search(arguments: &LbnlPlanArguments) -> Result<(Model, Search), Failure> {
    let LbnlPlanArguments { strategy, cluster, gpus, nvs, global_batch, .. } = arguments;
    let system = match nvs {
        Some(nvs) => cluster.clone().with_fast_domain(*nvs)?,
        None => cluster.clone(),
    };
    let model = arguments.model.described("gpt3-1t")?;
    let shape = Shape::try_from(&model)?;
    let batch = match global_batch {
        Some(batch) => sequences(*batch, model.seq_len)? as u64,
        None => PUBLISHED_BATCH,
    };
    let search = Search::new(shape, system, *strategy, *gpus, batch)?;
    Ok((model, search))
}

/// Prices the table; nothing is written unless every line has a price.
fn estimate(arguments: &LbnlEstimateArguments) -> Result<(), Failure> {
    let LbnlEstimateArguments { csv, out } = arguments;
    paths::check(&paths::asked([("--out", out)]), &[("--csv", csv)])?;
    let priced = priced(csv)?;
    match out {
        Some(path) => write_file("--out", path, output::csv(priced)?.as_bytes()),
        None if terminal::is_for_people() => print_text(priced_table(&priced)),
        None => print_text(output::csv(priced)?),
    }
}

/// The priced table, its header first.
fn priced(path: &Path) -> Result<Vec<Vec<String>>, Failure> {
    let name = path.display();
    let lines = price_table(&documents::TABLE.bytes(path)?).map_err(|error| {
        Failure::usage(match error {
            TableError::Unreadable(reason) => format!("cannot read {name}: {reason}"),
            TableError::Line { .. } => format!("{name}, {error}"),
        })
    })?;
    Ok(priced_rows(&lines))
}
