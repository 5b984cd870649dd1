//! The flags of `quadrille memorize` and their help.

use std::path::PathBuf;

use clap::{Arg, Args, ValueEnum};
use quadrille_data::{Goldfish, InputFormat, TokenizerChoice};
use quadrille_spec::ElementType;
use quadrille_study::{StudySpec, TextSpec};

use crate::arguments::{ModelArguments, RunArguments};
use crate::layout_arguments::{LayoutArguments, one_rank_help};
use crate::parse::whole;

const EXAMPLES: &str = "Examples:
  quadrille memorize                                      a small GPT on the built-in corpus, in a minute
  quadrille memorize --html memorised.html --seed 2
  quadrille memorize --grid x=2,data=2 --goldfish k=4,h=13
  quadrille memorize --from runs/llama --data wiki.jsonl --documents-per-bucket 200 --epochs 0,1,4,6 \
      --warmup-steps 50 --steps 50 --global-batch 128     as published (AxoNN, SC24, section VIII)

The model warms up on other text, then sees every document of a bucket as often as --epochs says, among other
text if --steps leaves room. It is then given the beginning of every document and writes the last tokens, always
the likeliest one. A document is memorised if all of them are right. Documents of the bucket of 0 epochs are never
seen: what is right there is no memory of this training. At the end the rate is a tenth of --lr, or what --set
final_fraction says. Small models need many epochs to memorise, large ones few: the default model about 50, models
of 70 billion parameters 1 to 6 (published).";

/// The losses that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Losses {
    /// A run with each.
    Both,
    /// All tokens are learned.
    Plain,
    /// Some tokens of every passage are left out.
    Goldfish,
}

/// Measure how much a model learns by heart of documents that it sees again and again, without and with the goldfish loss.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    allow_negative_numbers = true,
    mut_arg("lr", rate_help),
    mut_arg("ranks", one_rank_help),
    mut_arg("global_batch", batch_help)
)]
pub struct MemorizeArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Begin both runs with the parameters of a checkpoint, and train its model [default: initial values]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "from_hf"])]
    pub from: Option<PathBuf>,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: that of the checkpoint, else f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// How often the documents of each bucket are seen: a bucket for every number
    #[arg(long, value_name = "E,E,..", value_delimiter = ',', default_values_t = StudySpec::EPOCHS, value_parser = whole::<u32>(..))]
    pub epochs: Vec<u32>,
    /// Documents in each bucket
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole::<u32>(1..=100_000))]
    pub documents_per_bucket: u32,
    /// Steps on other text first, in which the learning rate rises
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole::<u64>(..1 << 32))]
    pub warmup_steps: u64,
    /// Steps after that, in which the documents are seen [default: as many as they fill]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..1 << 32))]
    pub steps: Option<u64>,
    /// Tokens at the end of each document that the model has to write
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole::<u32>(1..))]
    pub generate_tokens: u32,
    /// Which runs: both, plain or goldfish
    #[arg(long, value_name = "LOSS", default_value = "both")]
    pub loss: Losses,
    /// The goldfish loss leaves one in k tokens out, as a hash of the h tokens before it says
    #[arg(long, value_name = "k=K,h=H", default_value = "k=2,h=13")]
    pub goldfish: Goldfish,
    /// Keep the checkpoints of both runs, in this folder [default: they are removed]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write a page to this file, in place of what it holds: the shares of memorised documents, losses, the table. It opens in any
    /// browser, without a network
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Data")]
    pub text: TextArguments,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
}

/// Where documents are from.
#[derive(Debug, Args)]
pub struct TextArguments {
    /// Text, JSON lines, Parquet, or tokens, as in `train`; documents of at least --seq-len tokens are put into buckets at random, the
    /// first tokens of each; the rest is the other text [default: a built-in corpus, cut into documents]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// gpt2, bytes, or a tokenizer.json [default: gpt2 if the model's vocabulary is large enough]
    #[arg(long, value_name = "NAME|FILE.json")]
    pub tokenizer: Option<TokenizerChoice>,
    /// The field of JSON lines, or column of Parquet files, that holds the text
    #[arg(long, value_name = "FIELD", default_value = "text")]
    pub text_field: String,
    /// Format of files that do not show theirs: auto (JSON lines by name or first line, otherwise text; doubtful files are refused),
    /// text, json-lines, parquet, or raw-u16 or raw-u32 (token ids without a header, as nanoGPT writes them)
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub format: InputFormat,
    /// Learn the bytes of files that are no text, too: pictures, archives, checkpoints are refused else
    #[arg(long)]
    pub force_binary: bool,
    /// Skip lines of JSON lines and rows of Parquet files that hold no text in the field, and report how many; without it the first
    /// is an error
    #[arg(long)]
    pub skip_bad_lines: bool,
    /// Folder for tokenised text
    #[arg(long, value_name = "FOLDER", default_value = ".quadrille-cache")]
    pub cache: PathBuf,
}

impl TextArguments {
    /// What a study is told of them.
    pub fn spec(&self) -> TextSpec {
        TextSpec {
            paths: self.data.clone(),
            tokenizer: self.tokenizer.clone(),
            text_field: self.text_field.clone(),
            format: self.format,
            binary: self.force_binary,
            skip_bad_lines: self.skip_bad_lines,
            cache: self.cache.clone(),
        }
    }
}

impl MemorizeArguments {
    /// The losses of the runs, in their order: `None` learns all tokens.
    pub fn losses(&self) -> Vec<Option<Goldfish>> {
        match self.loss {
            Losses::Both => vec![None, Some(self.goldfish)],
            Losses::Plain => vec![None],
            Losses::Goldfish => vec![Some(self.goldfish)],
        }
    }
}

fn rate_help(argument: Arg) -> Arg {
    argument.help("Learning rate after the warm-up [default: 5e-3, with --from 3e-4]")
}

fn batch_help(argument: Arg) -> Arg {
    argument.help("Sequences in a step [default: 8]")
}
