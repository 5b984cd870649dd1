//! `quadrille paper axonn`: all grids of a number of ranks, ranked by AxoNN's communication model.

use std::time::Instant;

use clap::{Arg, Args, Subcommand};
use quadrille_papers::axonn;
use quadrille_papers::reproduce::AXONN;
use quadrille_report::papers::axonn::AxonnReport;
use quadrille_run::{LayoutDefaults, LayoutSpec, OpenLayout, SaidLayout};
use quadrille_spec::{ElementType, Field, FieldValue, LayoutFile, SpecError};

use super::reproduce::{self, ReproduceArguments};
use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text};
use crate::parse::whole;

/// The commands of AxoNN's model.
#[derive(Debug, Subcommand)]
pub enum AxonnCommand {
    /// Rank all grids of x, y, z and data by the seconds of communication in a step, without its computation
    Plan(Box<AxonnPlanArguments>),
    /// Compare the figures of the paper and of the dissertation with ours
    Reproduce(ReproduceArguments),
}

const EXAMPLES: &str = "Examples:
  quadrille paper axonn plan --model gpt-20b --cluster perlmutter --gpus 32
  quadrille paper axonn plan --model gpt-10b --cluster alps --gpus 16 --activations replicated";

/// The search of a number of GPUs' grids.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES, mut_arg("model", model_help))]
pub struct AxonnPlanArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Cluster preset or TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = LayoutSpec::CLUSTER)]
    pub cluster: String,
    /// Number of GPUs
    #[arg(long, value_name = "N", default_value_t = LayoutDefaults::USUAL.ranks, value_parser = whole::<usize>(1..=1 << 24))]
    pub gpus: usize,
    /// GPUs that share a node [default: the cluster's, or all]
    #[arg(long, value_name = "N", value_parser = field(Field::PerNode))]
    pub per_node: Option<FieldValue>,
    /// Sequences in a step, or tokens, e.g. 4M [default: 2 x GPUs]
    #[arg(long, value_name = "N|TOKENS", value_parser = field(Field::GlobalBatch))]
    pub global_batch: Option<FieldValue>,
    /// Sequences of a data rank in one pass [default: all of its share]
    #[arg(long, value_name = "N", value_parser = field(Field::Microbatch))]
    pub microbatch: Option<FieldValue>,
    /// Activations between linear layers: scattered or replicated [default: scattered]
    #[arg(long, value_name = "LAYOUT", value_parser = field(Field::Activations))]
    pub activations: Option<FieldValue>,
    /// Order of the axes in the numbering of ranks, innermost first [default: x,y,z,data]
    #[arg(long, value_name = "AXES", value_parser = field(Field::Order))]
    pub order: Option<FieldValue>,
    /// Type of the values that are sent: f32, f64, bf16 or f16
    #[arg(long, value_name = "TYPE", default_value_t = ElementType::Bf16)]
    pub dtype: ElementType,
    /// Number of the fastest grids to show
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = whole::<u32>(1..))]
    pub top: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt-demo]")
}

/// Parser of a layout's field.
fn field(field: Field) -> impl Fn(&str) -> Result<FieldValue, SpecError> + Clone + Send + Sync + 'static {
    move |text| field.parse(text)
}

impl AxonnPlanArguments {
    /// The layout without its grid, on its cluster.
    fn layout(&self) -> Result<OpenLayout, Failure> {
        let Self { per_node, global_batch, microbatch, activations, order, .. } = self;
        let typed = [
            (Field::PerNode, per_node),
            (Field::GlobalBatch, global_batch),
            (Field::Microbatch, microbatch),
            (Field::Activations, activations),
            (Field::Order, order),
        ];
        let typed = typed.into_iter().filter_map(|(field, value)| Some((field, value.clone()?)));
        let said = SaidLayout {
            ranks: Some(self.gpus),
            choices: typed.fold(LayoutFile::default(), |choices, (field, value)| choices.with(field, value)),
            cluster: Some(self.cluster.clone()),
            ..SaidLayout::default()
        };
        Ok(said.open(&LayoutDefaults::USUAL)?)
    }
}

/// Runs a command of AxoNN's model.
pub fn run(command: &AxonnCommand) -> Result<(), Failure> {
    match command {
        AxonnCommand::Plan(arguments) => plan(arguments),
        AxonnCommand::Reproduce(arguments) => reproduce::run(&[AXONN], arguments),
    }
}

/// Ranks grids and prints the best.
fn plan(arguments: &AxonnPlanArguments) -> Result<(), Failure> {
    let AxonnPlanArguments { gpus, dtype, top, .. } = arguments;
    let model = arguments.model.described("gpt-demo")?;
    let OpenLayout { request, cluster, .. } = arguments.layout()?;
    let start = Instant::now();
    let found = axonn::plan(&model, &cluster, *gpus, &request, dtype.bytes(), *top as usize)?;
    let seconds = start.elapsed().as_secs_f64();
    let report = AxonnReport { model: &model.name, cluster: &cluster.name, found: &found, seconds };
    if arguments.json { print_json(&report.document(&dtype.to_string())) } else { print_text(report.text()) }
}
