//! Flags of the benches of pipelines, simulations and plans, and their help.

use clap::{Args, value_parser};

/// Schedules with passes of given lengths, beside their simulation and the time without bubble. Passes are stretched by
/// waiting, so that stages need no core of their own. A backward pass takes twice --pass-ms, half of it for gradients of
/// weights, which zb-h1 puts off. The interleaved schedule has two chunks a stage, and is left out where the stages do not
/// divide the microbatches.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = BENCH_PIPELINE_EXAMPLES)]
pub struct BenchPipelineArguments {
    /// Stages
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u16).range(2..=64))]
    pub stages: u16,
    /// Microbatches of a step; the interleaved schedule is left out where --stages does not divide them
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..=4096))]
    pub microbatches: u16,
    /// Milliseconds of a forward pass
    #[arg(long, value_name = "MS", default_value_t = 5.0)]
    pub pass_ms: f64,
    /// Measured steps, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u64).range(1..=1_000_000))]
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
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub global_batch: usize,
    /// Measured steps, after one that warms up; the median counts
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u64).range(1..=1_000_000))]
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
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub runs: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}
