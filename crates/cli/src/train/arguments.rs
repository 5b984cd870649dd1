//! The flags of `train`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use quadrille_engine::{LossScale, OnDivergence, OnSaveFailure};
use quadrille_spec::ElementType;

use crate::arguments::{ModelArguments, RunArguments};
use crate::data_arguments::DataArguments;
use crate::device::DeviceArguments;
use crate::layout_arguments::LayoutArguments;
use crate::layout_flags::offload_to_folder;
use crate::parse::{real, whole};

/// Reads `stop`, or another word for what goes on.
fn stop_or<A>(word: &'static str, stop: A, other: A) -> impl TypedValueParser<Value = A>
where
    A: Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(["stop", word]).map(move |said| if said == word { other.clone() } else { stop.clone() })
}

const EXAMPLES: &str = "Examples:
  quadrille train --grid x=2,y=2,data=2 --data book.txt --log run.jsonl
  quadrille train --data wiki.jsonl:0.7 code/:0.3 --validation 0.01 --out run --checkpoint-every 100
  quadrille train --resume run                          after a crash or Ctrl-C, with the same bits
  quadrille train --resume run --grid x=2,pipe=2        the same on other ranks
  quadrille train --from gpt2 --out tuned --data book.txt --goldfish k=2,h=13";

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, mut_arg("offload", offload_to_folder), after_help = EXAMPLES)]
pub struct TrainArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Optimizer steps [default: 400]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(..))]
    pub steps: Option<u64>,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Multiply gradients by a power of two until the update, so that --dtype f16 holds them: N, or auto, which is halved when
    /// they overflow, and the step skipped, and doubled after 200 good steps [default: auto, of other types none]
    #[arg(long, value_name = "auto|N")]
    pub loss_scale: Option<LossScale>,
    /// Write a JSON object per step to this file, in place of what it holds
    #[arg(long, value_name = "FILE.jsonl")]
    pub log: Option<PathBuf>,
    /// Write what every rank did in the last step, and when, to this file, in place of what it holds; chrome://tracing
    /// and Perfetto show it beside the simulated one of `explain --trace`
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Time NN, NT and TN of every product before the first step, or on a device the algorithms that its library offers, and
    /// use the fastest; a device's are kept for later runs. With a FILE that exists, its
    /// choices are replayed, if it was written with the same --dtype and --threads; one that does not exist is written.
    /// May change rounding
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub tune_matmul: Option<Option<PathBuf>>,
    /// Begin a run in this folder: a log, and the checkpoints from which --resume goes on
    #[arg(long, value_name = "DIR", help_heading = "State")]
    pub out: Option<PathBuf>,
    /// Go on with the run in this folder from its newest checkpoint, in any layout: as it was decided when it began, and in
    /// place of it what this command line says. A run that was killed after its last step is brought to its end. Data that
    /// has changed since is refused, unless flags of this command name what is to be read
    #[arg(long, value_name = "DIR", conflicts_with = "out", help_heading = "State")]
    pub resume: Option<PathBuf>,
    /// Begin with the parameters of a checkpoint, e.g. one of `convert`, and train its model
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "from_hf"], help_heading = "State")]
    pub from: Option<PathBuf>,
    /// Write a checkpoint every N steps; needs --out [default: at the end, and when interrupted]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..), help_heading = "State")]
    pub checkpoint_every: Option<u64>,
    /// Keep the newest K checkpoints [default: 3]
    #[arg(long, value_name = "K", value_parser = whole::<usize>(1..), help_heading = "State")]
    pub keep: Option<usize>,
    /// What to do when a checkpoint cannot be written: stop or continue [default: stop]
    #[arg(
        long, value_name = "ACTION", help_heading = "State",
        value_parser = stop_or("continue", OnSaveFailure::Stop, OnSaveFailure::Continue)
    )]
    pub on_checkpoint_failure: Option<OnSaveFailure>,
    /// What to do with a step whose loss or gradient is not finite, or above --largest-loss; it is never applied: stop or
    /// skip, until 50 in a row end the run [default: stop]
    #[arg(
        long, value_name = "ACTION", help_heading = "State",
        value_parser = stop_or("skip", OnDivergence::Stop, OnDivergence::Skip)
    )]
    pub on_divergence: Option<OnDivergence>,
    /// The largest loss that is applied, as a multiple of the mean of the last 50 [default: none]
    #[arg(long, value_name = "FACTOR", help_heading = "State", value_parser = real)]
    pub largest_loss: Option<f64>,
    /// Validate every N steps, and at the end; needs --validation or --validation-data [default: 100]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..), help_heading = "Data")]
    pub validate_every: Option<u64>,
    /// Validate on at most so many batches of the step's size; the last is not full where there are fewer samples [default:
    /// 20]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..), help_heading = "Data")]
    pub validation_batches: Option<u64>,
    /// Print one JSON document with losses and ledgers
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Data")]
    pub data: DataArguments,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub device: DeviceArguments,
}
