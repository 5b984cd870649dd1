//! Flags and their help.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Parser, Subcommand, ValueEnum, value_parser};
use quadrille_papers::reproduce::PARTS;
use quadrille_run::RunSpec;
use quadrille_spec::{Axis, Collectives, ElementType};

use crate::bench::arguments::{BenchPipelineArguments, BenchPlanArguments, BenchSimulationArguments};
use crate::bench::collectives::arguments::BenchCollectivesArguments;
use crate::calibrate::arguments::CalibrateArguments;
use crate::checkpoint::CheckpointArguments;
use crate::convert::ConvertArguments;
use crate::data::DataCommandArguments;
use crate::estimate::EstimateArguments;
use crate::evaluate::EvalArguments;
use crate::export::ExportArguments;
use crate::generate::GenerateArguments;
use crate::layout_arguments::LayoutArguments;
use crate::memorize::arguments::MemorizeArguments;
use crate::plan::atp::AtpArguments;
use crate::plan::lbnl::LbnlArguments;
use crate::plan::native::arguments::{DOCUMENT, QuestionArguments, ResultArguments};
use crate::plan::native::priced::PriceArguments;
use crate::prune::PruneArguments;
use crate::quantities::Counts;
use crate::report::ReportArguments;
use crate::shell::{CompletionsArguments, ManArguments};
use crate::sweep::SweepArguments;
use crate::train::arguments::TrainArguments;
use crate::validate::ValidateArguments;

/// Plans, runs and proves the parallel training of large transformers.
#[derive(Debug, Parser)]
#[command(name = "quadrille", version = env!("QUADRILLE_VERSION"), arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  quadrille train                                          train a small GPT on 8 ranks, grid chosen by the cost model
  quadrille train --grid x=2,y=2,data=2 --data book.txt    the same on your text, on a grid of your choice
  quadrille generate --from runs/mine --prompt 'Once upon a time'
  quadrille memorize                                       what is learned by heart, without and with the goldfish loss
  quadrille verify --model gpt-tiny --ranks 8 --all-grids  every grid of 8 ranks equals the serial model
  quadrille train --grid x=2,pipe=2 --recompute full       a pipeline of two stages whose blocks are computed again
  quadrille explain --grid x=2,y=2,z=2 --program           what are all these collectives?
  quadrille plan --model gpt-20b --ranks 32 --cluster perlmutter
  quadrille plan --cost lbnl --strategy 2d --model gpt3-1t --gpus 16384 --cluster b200 --nvs 8
  quadrille reproduce megatron                             the paper's tables beside our formulas
  quadrille export --to megatron --model llama3-8b --grid x=4,data=2,pipe=2 --gpus-per-node 8
  quadrille convert --from-hf ~/models/gpt2 gpt2           a Hugging Face model as a checkpoint; --to-hf: back
  quadrille calibrate --out here.toml                      measure this machine for --cluster here.toml
  quadrille validate local --ranks 4 --html local.html      predicted against measured steps, layout by layout
  quadrille checkpoint info runs/a                          what the newest checkpoint of a run holds
  quadrille report runs/a                                   a page with the curves of a run, its step and its ledger
  quadrille data prepare wiki.jsonl --out wiki --format megatron
  quadrille bench step                                     speed beside what the matrix library reaches";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model on thread ranks.
    Train(Box<TrainArguments>),
    /// Prove that layouts compute what the serial model computes, and that predictions equal counts.
    Verify(VerifyArguments),
    /// Compute the loss of a checkpoint, in any layout.
    Eval(Box<EvalArguments>),
    /// Continue text with a checkpoint's model, in any layout.
    Generate(Box<GenerateArguments>),
    /// Show a run as one page: curves, what a step is spent on and sends, predicted beside measured.
    Report(ReportArguments),
    /// Measure what a model learns by heart of documents that it sees again and again, without and with the goldfish loss.
    Memorize(Box<MemorizeArguments>),
    /// Show what a layout does without running it: program, bytes, FLOPs, memory.
    Explain(ExplainArguments),
    /// Find the fastest layouts of a model on a cluster: how long a step takes, what it needs, what limits it.
    Plan(PlanArguments),
    /// Search the best layout for every value of one or two numbers: GPUs, batch, hardware.
    Sweep(SweepArguments),
    /// Price the configurations of a table.
    Estimate(EstimateArguments),
    /// Print the figures of the source works beside ours.
    Reproduce(ReproduceArguments),
    /// Write a layout as another framework's flags or configuration.
    Export(ExportArguments),
    /// Convert a Hugging Face model to a checkpoint, or a checkpoint to one.
    Convert(ConvertArguments),
    /// Measure the speed beside a yardstick of the same run.
    Bench(BenchArguments),
    /// Measure this machine, or read others' measurements, and write a cluster file that every --cluster reads.
    Calibrate(CalibrateArguments),
    /// Hold predictions against measured steps: published ones, or this machine's.
    Validate(ValidateArguments),
    /// Make the smallest weights of a checkpoint zero, or tell when their mask has settled.
    Prune(PruneArguments),
    /// Look at checkpoints, verify them, merge their tiles, remove old ones.
    Checkpoint(CheckpointArguments),
    /// Turn text into tokens, convert files of tokens, and say what files hold.
    Data(DataCommandArguments),
    /// Print what a shell needs to complete commands and flags.
    Completions(CompletionsArguments),
    /// Write the pages of the manual.
    Man(ManArguments),
}

/// Which model.
#[derive(Debug, Args)]
pub struct ModelArguments {
    /// A preset's name or a TOML file [default: gpt-demo]
    #[arg(long, value_name = "NAME|FILE")]
    pub model: Option<String>,
    /// A Hugging Face configuration (model_type gpt2, gpt_neox, llama or mistral) in place of --model
    #[arg(long, value_name = "CONFIG.json", conflicts_with = "model")]
    pub from_hf: Option<PathBuf>,
    /// Replace a field of the model or of training, e.g. --set layers=4 --set weight_decay=0
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Where and with what ranks run.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Keys initial values, sampling and dropout [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Peak learning rate [default: 3e-3]
    #[arg(long, value_name = "RATE")]
    pub lr: Option<f64>,
    /// Threads of each rank [default: cores / ranks, at least one]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seconds after which a collective or a message that waits for a rank stops the job; receives wait from when they
    /// are posted, in a pipeline some passes ahead [default: 300]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// How collectives run: ring, recursive (doubling and halving), hierarchical (recursive between nodes, rings inside),
    /// native (shared memory between threads; the MPI library's own) or auto (threads: native; else the fastest of the
    /// first three by group, size and the --cluster's tiers, ring where it has none), e.g. --collectives hierarchical --per-node 4
    /// [default: auto]
    #[arg(long, value_name = "ALGORITHM")]
    pub collectives: Option<Collectives>,
}

impl RunArguments {
    /// The seed that was typed, or the usual one.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(RunSpec::SEED)
    }

    /// By which algorithm collectives are to run.
    pub fn collectives(&self) -> Collectives {
        self.collectives.unwrap_or(Collectives::Auto)
    }
}

const VERIFY_LIMITS: &str = "Both sides take the model's description, the samples and the words of the random generator from \
the same place: what is wrong there is wrong on both sides. ARCHITECTURE.md says which tests guard it.";

#[derive(Debug, Args)]
#[command(mut_arg("model", verify_model_help), mut_arg("lr", verify_lr_help), after_help = VERIFY_LIMITS)]
pub struct VerifyArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Every grid of --ranks ranks over x, y, z and data
    #[arg(long)]
    pub all_grids: bool,
    /// With --all-grids: every grid over these axes, e.g. --axes x,context,pipe [default: x,y,z,data]
    #[arg(long, value_name = "AXES", value_delimiter = ',', requires = "all_grids")]
    pub axes: Option<Vec<Axis>>,
    /// Optimizer steps to compare: four have the warm-up, the peak, the decay and the end of the learning rate
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub steps: u64,
    /// f64 to 1e-11; f32 to 5e-5, where weights are held to 1e-6 against an update by the layout's own gradients; bf16 and
    /// f16, where gradients are held to what rounding does in small models: f64 proves that no sum is missing [default: f64]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// The step program: operations, shapes, shardings, collectives, memory; wide, best seen with `| less -S`
    #[arg(long)]
    pub program: bool,
    /// The predicted ledger: bytes per axis and collective, FLOPs, memory per class
    #[arg(long)]
    pub ledger: bool,
    /// One rank only [default: all in a ledger, 0 in the summary]
    #[arg(long, value_name = "N")]
    pub rank: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Simulation")]
    pub machine: MachineArguments,
    #[command(flatten, next_help_heading = "Price")]
    pub price: PriceArguments,
}

/// A machine to simulate the step on.
#[derive(Debug, Args)]
pub struct MachineArguments {
    /// Simulate the step on devices of --cluster, priced as by --price with --framework quadrille: a line per stage, time from
    /// left to right
    #[arg(long)]
    pub timeline: bool,
    /// Simulate, and write what runs when to this file, in place of what it holds; chrome://tracing and Perfetto show it
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Simulate on devices of one rate for all operations instead: GFLOP/s in products and attention, e.g.
    /// --device-gflops 280e3 [default: 50 on local]
    #[arg(long, value_name = "GFLOP/S")]
    pub device_gflops: Option<f64>,
    /// The same: GB/s of a device's memory, e.g. --memory-gb-s 1555 [default: 10 on local]
    #[arg(long, value_name = "GB/S")]
    pub memory_gb_s: Option<f64>,
    /// The same: microseconds before an operation or a message begins, e.g. --latency-us 5 [default: 1]
    #[arg(long, value_name = "US")]
    pub latency_us: Option<f64>,
}

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
    mut_arg("layout", plan_layout_help),
    mut_arg("model", plan_model_help),
    mut_arg("cluster", plan_cluster_help),
    mut_arg("global_batch", plan_batch_help)
)]
pub struct PlanArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// The cost model
    #[arg(long, value_enum, default_value_t = Cost::Native)]
    pub cost: Cost,
    /// Number of GPUs; with --pareto a list or a range, e.g. 64,96 or 64..1024 (doubled from the first) or 64..1024:9 (so
    /// many, with equal ratios) [default: --ranks, or 1024]
    #[arg(long, value_name = "N|RANGE")]
    pub gpus: Option<Counts>,
    /// GPUs of a fast domain, e.g. --nvs 8 [default: the cluster's own]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 24))]
    pub nvs: Option<u32>,
    /// Type of the values: f32, f64, bf16 or f16 with --framework quadrille [default: f32]; of those that are sent with --cost
    /// axonn or atp [default: bf16]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// How many of the best to show
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = value_parser!(u32).range(1..))]
    pub top: u32,
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

/// Printed figures beside ours: by the works' formulas, and by our schedules. Figures that do not follow from formulas,
/// such as measured times, are left out.
#[derive(Debug, Args)]
pub struct ReproduceArguments {
    /// Which work
    #[arg(value_name = "WORK", default_value = ALL_PARTS, value_parser = PossibleValuesParser::new(parts()))]
    pub part: String,
    /// Write the points to this file as comma-separated values, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What `reproduce` calls all works.
pub const ALL_PARTS: &str = "all";

fn parts() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name).chain([ALL_PARTS])
}

#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub bench: Bench,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// A whole training step of a model, beside the matrix library's own rate
    Step(BenchStepArguments),
    /// Every product of a step, beside the matrix library's own rate
    Gemm(BenchGemmArguments),
    /// Collectives by every algorithm, beside what the transport brings and a memory copy
    Collectives(BenchCollectivesArguments),
    /// Pipeline schedules against each other: equal stages, a slow stage, varying message delays
    Pipeline(BenchPipelineArguments),
    /// Simulated against measured steps of ten layouts
    Simulation(BenchSimulationArguments),
    /// Configurations that searches price in a second, beside published planners
    Plan(BenchPlanArguments),
}

/// A step of `train` on random tokens, gradient norm and clipping included: GPT-2 124M, one rank with all cores,
/// 4 sequences of 256 tokens, f32, unless asked otherwise.
#[derive(Debug, Args)]
#[command(
    mut_arg("model", model_help),
    mut_arg("ranks", ranks_help),
    mut_arg("global_batch", batch_help),
    mut_arg("seq_len", seq_len_help)
)]
pub struct BenchStepArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Measured steps, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..))]
    pub steps: u64,
    /// With several ranks: leave out the run of one rank with the threads of all
    #[arg(long)]
    pub no_scaling: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
}

/// Every distinct product of a rank's step, f32, beside the library's own threads on the same operands.
#[derive(Debug, Args)]
#[command(
    mut_arg("model", model_help),
    mut_arg("ranks", ranks_help),
    mut_arg("global_batch", batch_help),
    mut_arg("seq_len", seq_len_help)
)]
pub struct BenchGemmArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Threads [default: cores]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt2-124m]")
}

fn plan_layout_help(argument: Arg) -> Arg {
    argument.help(
        "A layout as a TOML file, of which all but its type counts; of its grid the number of ranks, and with --cost axonn \
         the order",
    )
}

fn plan_model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt3-175b, with --cost axonn gpt-demo, with lbnl gpt3-1t]")
}

fn plan_cluster_help(argument: Arg) -> Arg {
    argument.help(
        "Cluster preset or TOML file: what layouts are chosen for. With --cost lbnl one of the paper's systems: a100, h200, \
         b200, b200-next; with megatron one that names its device [default: selene, with --cost axonn local]",
    )
}

fn plan_batch_help(argument: Arg) -> Arg {
    argument.help("Sequences in a step [default: 2 x ranks; with --cost lbnl 4096, with atp 4]")
}

fn verify_model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt-tiny]")
}

fn verify_lr_help(argument: Arg) -> Arg {
    argument.help("Peak learning rate [default: 1e-3]")
}

fn ranks_help(argument: Arg) -> Arg {
    argument.help("Number of ranks; with a grid it must be the product of its sizes [default: the grid's, or 1]")
}

fn batch_help(argument: Arg) -> Arg {
    argument.help("Sequences in a step [default: 4, raised to a multiple of y*z*data*overlap-chunks]")
}

fn seq_len_help(argument: Arg) -> Arg {
    argument.help("Tokens in a sequence [default: 256, or as many as the model takes]")
}
