//! The flags of `quadrille calibrate` and their help.

use std::path::PathBuf;

use crate::device::DeviceArguments;
use crate::parse::whole;
use clap::Args;
use quadrille_measure::ImportSpec;
use quadrille_measure::logs::Job;

const EXAMPLES: &str = "Examples:
  quadrille calibrate --out here.toml                          ranks and threads as those of train
  quadrille calibrate --out here.toml --ranks 4 --threads 2 --runs 15
  mpirun -n 8 quadrille calibrate --out cluster.toml           ranks as processes, on the nodes where they run
  quadrille calibrate --out gpus.toml --device cuda --ranks 4  GPUs, for steps in bf16 and f32 there
  quadrille plan --cluster here.toml --framework quadrille --model gpt-tiny --gpus 2 --explain
  quadrille calibrate --out mine.toml --cluster dgx-a100 --from-nccl-tests all_reduce.log --from-nccl-tests all_gather.log
  quadrille calibrate --out mine.toml --cluster perlmutter --from-osu osu_allreduce.log --ranks 16 --per-node 4
  quadrille calibrate --out mine.toml --cluster dgx-a100 --framework megatron --from-step gpt2-1558m layout.toml 2.31

What is measured, by all ranks at once:
  products       16, 32 and 64 bits, as in forward passes (nn), gradients of inputs (nt) and of weights (tn)
  attention      forward and backward, causal; on a device also of 16 bits
  element-wise   out of cache (memory bandwidth) and in cache (vector rate); an operation of the engine on tiny operands
  copies         from the host to a device and back
  collectives    of 4 KiB to 16 MiB, on a device to 64 MiB, by the whole job and by all groups (G0, G1) of a node: G1
                 ranks, G0 apart (AxoNN, SC24, section V-B); from these latency, bandwidth and half_bytes of the
                 cluster's tiers are fitted; then the same by every algorithm";

/// Measure this machine, or read what others have measured, and write a cluster file for every --cluster.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct CalibrateArguments {
    /// Write the cluster to this file, in place of what it holds
    #[arg(long, value_name = "FILE.toml")]
    pub out: PathBuf,
    /// Number of ranks; of a log that does not say it [default: 8, as `train` has them; under mpirun all processes]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(2..=512))]
    pub ranks: Option<u16>,
    /// Ranks that share a node; of a log that does not say it [default: all; under mpirun those of a machine]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=512))]
    pub per_node: Option<u16>,
    /// Threads of each rank [default: cores / ranks, at least one, as `train` has them]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=512))]
    pub threads: Option<u16>,
    /// Runs of each measurement; medians count [default: 7, with --quick 3]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    pub runs: Option<u16>,
    /// Fewer shapes and sizes, fewer runs: seconds instead of a minute or two
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArguments,
    #[command(flatten, next_help_heading = "What others have measured")]
    pub import: ImportArguments,
}

/// Measurements of others, and what they are put into.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The cluster, a preset or a file, whose fields are kept where nothing was measured
    #[arg(long, value_name = "NAME|FILE")]
    pub cluster: Option<String>,
    /// What nccl-tests printed (all_reduce_perf and others); the tier that the ranks span is fitted again; may be repeated
    #[arg(long, value_name = "LOG", requires = "cluster")]
    pub from_nccl_tests: Vec<PathBuf>,
    /// What the OSU benchmarks printed (osu_allreduce and others), which do not say --ranks and --per-node; may be repeated
    #[arg(long, value_name = "LOG", requires = "cluster")]
    pub from_osu: Vec<PathBuf>,
    /// A measured step of a model in a layout: products become faster or slower by one factor until the model's price is
    /// that; may be repeated
    #[arg(
        long, num_args = 3, value_names = ["MODEL", "LAYOUT.toml", "SECONDS"], action = clap::ArgAction::Append,
        requires = "cluster"
    )]
    pub from_step: Vec<String>,
    /// What ran the steps, as in `plan` [default: what their layouts were planned for, else megatron]
    #[arg(long, value_name = "NAME", requires = "from_step")]
    pub framework: Option<String>,
}

impl ImportArguments {
    /// What is read, of jobs of so many ranks where logs do not say it.
    pub fn spec(&self, job: Job) -> ImportSpec {
        ImportSpec {
            nccl_tests: self.from_nccl_tests.clone(),
            osu: self.from_osu.clone(),
            job,
            steps: self.from_step.as_chunks().0.to_vec(),
            framework: self.framework.clone(),
        }
    }

    /// Whether anything is read instead of measured.
    pub fn any(&self) -> bool {
        !(self.from_nccl_tests.is_empty() && self.from_osu.is_empty() && self.from_step.is_empty())
    }
}
