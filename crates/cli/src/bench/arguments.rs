//! Flags of the benches, but for that of collectives, and their help.

use clap::{Arg, Args, Subcommand};
use quadrille_spec::ElementType;

use super::collectives::arguments::BenchCollectivesArguments;
use crate::arguments::{ModelArguments, RunArguments};
use crate::device::DeviceArguments;
use crate::layout_arguments::{LayoutArguments, one_rank_help};
use crate::layout_flags::offload_to_folder;
use crate::parse::{real, whole};

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
    /// Steps whose optimizer states come in buckets from the host's memory or from files, beside a plain copy
    Optimizer(BenchOptimizerArguments),
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
    mut_arg("ranks", one_rank_help),
    mut_arg("global_batch", batch_help),
    mut_arg("seq_len", seq_len_help),
    mut_arg("offload", offload_to_folder)
)]
pub struct BenchStepArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Measured steps, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<u64>(1..))]
    pub steps: u64,
    /// With several ranks: leave out the run of one rank with the threads of all
    #[arg(long)]
    pub no_scaling: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArguments,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
}

/// A step of `train` on random tokens with states on the device, and in 1, 2, 4 and 8 buckets below it, without and with
/// --optimizer-overlap; what moves is also moved alone. The bound is the longer of the first step and of the moves, and 15%.
#[derive(Debug, Args)]
#[command(
    mut_arg("model", model_help),
    mut_arg("ranks", one_rank_help),
    mut_arg("global_batch", batch_help),
    mut_arg("seq_len", seq_len_help),
    mut_arg("offload", offload_to_folder),
    after_help = BENCH_OPTIMIZER_EXAMPLES
)]
pub struct BenchOptimizerArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Measured steps of each row, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<u64>(1..))]
    pub steps: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
}

const BENCH_OPTIMIZER_EXAMPLES: &str = "Examples:
  quadrille bench optimizer                                states in the host's memory
  quadrille bench optimizer --offload /scratch             in files of this folder
  quadrille bench optimizer --grid data=2 --dtype bf16     with reductions to hide";

/// Every distinct product of a rank's step, f32, beside the library's own threads on the same operands.
#[derive(Debug, Args)]
#[command(
    mut_arg("model", model_help),
    mut_arg("ranks", one_rank_help),
    mut_arg("global_batch", batch_help),
    mut_arg("seq_len", seq_len_help)
)]
pub struct BenchGemmArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Threads [default: cores]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub threads: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
}

/// Schedules with passes of given lengths, beside their simulation and the time without bubble. Passes are stretched by
/// waiting, so that stages need no core of their own. A backward pass takes twice --pass-ms, half of it for gradients of
/// weights, which zb-h1 puts off. The interleaved schedule has two chunks a stage, and is left out where the stages do not
/// divide the microbatches.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = BENCH_PIPELINE_EXAMPLES)]
pub struct BenchPipelineArguments {
    /// Stages
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u16>(2..=64))]
    pub stages: u16,
    /// Microbatches of a step; the interleaved schedule is left out where --stages does not divide them
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole::<u16>(1..=4096))]
    pub microbatches: u16,
    /// Milliseconds of a forward pass
    #[arg(long, value_name = "MS", default_value_t = 5.0, value_parser = real)]
    pub pass_ms: f64,
    /// Measured steps, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u64>(1..=1_000_000))]
    pub steps: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

const BENCH_PIPELINE_EXAMPLES: &str = "Examples:
  quadrille bench pipeline                                 five schedules on 4 stages
  quadrille bench pipeline --stages 8 --microbatches 32    a longer pipeline
  quadrille bench pipeline --pass-ms 20                    longer passes: less noise";

/// Steps on thread ranks of one thread each, beside their simulation with constants that are measured first: rates of
/// products, of attention and of memory, latencies, bandwidth. Where there are more ranks than cores, the ranks that
/// compute at once share them.
#[derive(Debug, Args)]
#[command(after_help = BENCH_SIMULATION_EXAMPLES)]
pub struct BenchSimulationArguments {
    /// Replace a size of the model, e.g. --set hidden=512 --set layers=8
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Sequences in a step, a multiple of 8
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<usize>(..))]
    pub global_batch: usize,
    /// Measured steps, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u64>(1..=1_000_000))]
    pub steps: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

const BENCH_SIMULATION_EXAMPLES: &str = "Examples:
  quadrille bench simulation                               ten layouts of 2 to 8 ranks
  quadrille bench simulation --set hidden=512 --steps 8    a larger model, more steps";

/// Complete searches on one core: every configuration is enumerated, priced, and ranked where it fits.
#[derive(Debug, Args)]
pub struct BenchPlanArguments {
    /// Measured runs of each search, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = whole::<u32>(1..=1_000_000))]
    pub runs: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt2-124m]")
}

fn batch_help(argument: Arg) -> Arg {
    argument.help("Sequences in a step [default: 4, raised to a multiple of y*z*data*overlap-chunks]")
}

fn seq_len_help(argument: Arg) -> Arg {
    argument.help("Tokens in a sequence [default: 256, or as many as the model takes]")
}
