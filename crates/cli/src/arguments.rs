//! Flags and their help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use quadrille_engine::Hyper;
use quadrille_run::{ModelSource, OptimizerSpec, Refusal, RunError, RunSpec, Settings};
use quadrille_spec::{Collectives, Model};

use crate::bench::arguments::BenchArguments;
use crate::calibrate::arguments::CalibrateArguments;
use crate::checkpoint_command::arguments::CheckpointArguments;
use crate::convert::ConvertArguments;
use crate::data_command::DataCommandArguments;
use crate::evaluate::EvalArguments;
use crate::explain::ExplainArguments;
use crate::export::ExportArguments;
use crate::generate::GenerateArguments;
use crate::memorize::arguments::MemorizeArguments;
use crate::paper::PaperArguments;
use crate::parse::{real, whole};
use crate::plan::arguments::PlanArguments;
use crate::prune::PruneArguments;
use crate::report::ReportArguments;
use crate::serve::ServeArguments;
use crate::shell::{CompletionsArguments, ManArguments};
use crate::sweep::SweepArguments;
use crate::terminal::OutputArguments;
use crate::train::arguments::TrainArguments;
use crate::validate::ValidateArguments;
use crate::verify::VerifyArguments;

/// Plans, runs and proves the parallel training of large transformers.
#[derive(Debug, Parser)]
#[command(name = "quadrille", version = env!("QUADRILLE_VERSION"), arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub output: OutputArguments,
}

const EXAMPLES: &str = "Examples:
  quadrille train                                          train a small GPT on 8 ranks, grid chosen by the cost model
  quadrille train --grid x=2,y=2,data=2 --data book.txt    the same on your text, on a grid of your choice
  quadrille generate --from runs/mine --prompt 'Once upon a time'
  quadrille memorize                                       what is learned by heart, without and with the goldfish loss
  quadrille verify --model gpt-tiny --ranks 8 --all-grids  every grid of 8 ranks equals the serial model
  quadrille train --grid x=2,pipe=2 --recompute full       a pipeline of two stages whose blocks are computed again
  quadrille explain --grid x=2,y=2,z=2                     what are all these collectives?
  quadrille plan --model gpt-20b --ranks 32 --cluster perlmutter
  quadrille paper lbnl plan --strategy 2d --gpus 16384 --cluster b200 --nvs 8
  quadrille paper megatron reproduce                       the paper's tables beside our formulas
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
    /// Plan in a browser: a page on this machine that answers every change.
    Serve(ServeArguments),
    /// Plan by the models of published works, and compare their figures with ours.
    Paper(PaperArguments),
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
    /// A Hugging Face configuration (model_type deepseek_v3, gemma, gemma2, gemma3_text, gpt2, gpt_neox, kimi_k2, llama, mistral,
    /// mixtral, olmo2, olmoe, phi3, qwen2, qwen3, qwen3_moe or starcoder2) in place of --model
    #[arg(long, value_name = "CONFIG.json", conflicts_with = "model")]
    pub from_hf: Option<PathBuf>,
    /// Replace a field of the model or of training, e.g. --set layers=4 --set weight_decay=0
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ModelArguments {
    /// The model, `default` where none is named, with `--set` applied to it and to the constants of its training.
    pub fn settings(&self, default: &str, optimizer: impl Into<OptimizerSpec>) -> Result<Settings, RunError> {
        let of = match &self.from_hf {
            Some(path) => ModelSource::HuggingFace(path),
            None => ModelSource::Named(self.model.as_deref().unwrap_or(default)),
        };
        Settings::new(of, &self.set, optimizer.into())
    }

    /// The same of a model that is known.
    pub fn settings_of(&self, model: &Model, optimizer: impl Into<OptimizerSpec>) -> Result<Settings, RunError> {
        Settings::new(ModelSource::Known(model), &self.set, optimizer.into())
    }

    /// The model alone.
    pub fn described(&self, default: &str) -> Result<Model, RunError> {
        Ok(self.settings(default, Hyper::default())?.model)
    }
}

/// Where and with what ranks run.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Keys initial values, sampling and dropout [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(..))]
    pub seed: Option<u64>,
    /// Peak learning rate [default: 3e-3]
    #[arg(long, value_name = "RATE", value_parser = real)]
    pub lr: Option<f64>,
    /// Threads of each rank [default: cores / ranks, at least one]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub threads: Option<usize>,
    /// Seconds after which a collective or a message that waits for a rank stops the job; receives wait from when they
    /// are posted, in a pipeline some passes ahead [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = real)]
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

    /// The collectives' time limit.
    pub fn timeout(&self) -> Result<Duration, Refusal> {
        quadrille_run::timeout(self.timeout.unwrap_or(RunSpec::TIMEOUT))
    }

    /// Applies `--lr`.
    pub fn with_rate(&self, optimizer: OptimizerSpec) -> Result<OptimizerSpec, Refusal> {
        self.lr.map_or(Ok(optimizer), |rate| optimizer.with_rate(rate))
    }

    /// Applies `--lr` and the number of steps.
    pub fn hyper(&self, optimizer: OptimizerSpec, steps: u64) -> Result<Hyper, Refusal> {
        self.with_rate(optimizer)?.hyper(steps)
    }

    /// By which algorithm collectives are to run.
    pub fn collectives(&self) -> Collectives {
        self.collectives.unwrap_or(Collectives::Auto)
    }
}
