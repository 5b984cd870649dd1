//! `quadrille convert`: models of Hugging Face's transformers library to checkpoints, and back.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use quadrille_checkpoint::Checkpoint;
use quadrille_hugging_face::{ExportOptions, Source, StoredType, export_watched, import_watched};
use quadrille_report::conversion::{ExportedModelReport, ImportedModelReport};
use quadrille_run::Settings;
use quadrille_spec::SpecError;

use crate::bars;
use crate::failure::Failure;
use crate::flags::called;
use crate::output::{print_json, print_text, remark};

const EXAMPLES: &str = "Examples:
  quadrille convert --from-hf ~/models/gpt2 gpt2            writes gpt2/step-000000000000
  quadrille convert --to-hf ~/models/mine runs/mine         the newest checkpoint of a run
  quadrille convert --to-hf mine-bf16 --dtype bf16 --shard-size 2GB runs/mine
  quadrille convert --from-hf Mistral-7B-v0.1 --set seq_len=4096 mistral

Models: gemma, gemma2, gemma3_text, gpt2, gpt_neox, llama, mistral, mixtral, olmo2, olmoe, phi3,
qwen2, qwen3, qwen3_moe and starcoder2 as save_pretrained writes them: config.json,
model.safetensors or shards with their index, in f32, f16 or bf16. What cannot be expressed
exactly is refused.

A checkpoint keeps config.json, names and types, so that an imported model is exported with the
same bits. The files of its tokenizer, chat templates and generation_config.json are copied along,
byte for byte, both ways; README, LICENSE and Python files are not. One tensor is in memory at a
time.";

/// Convert a Hugging Face model to a checkpoint, or a checkpoint to one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("direction").required(true))]
pub struct ConvertArguments {
    /// Read this folder of a Hugging Face model and write a checkpoint of it, in f32
    #[arg(long, value_name = "HF_FOLDER", group = "direction")]
    pub from_hf: Option<PathBuf>,
    /// Write the checkpoint's model to this folder, which must be empty or not there
    #[arg(long, value_name = "HF_FOLDER", group = "direction")]
    pub to_hf: Option<PathBuf>,
    /// With --from-hf a folder for checkpoints to write, empty or not there; with --to-hf a checkpoint, a folder of
    /// checkpoints or a run's folder to read (the newest counts)
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: PathBuf,
    /// Replace a field of the imported model, e.g. --set seq_len=4096
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "to_hf")]
    pub set: Vec<String>,
    /// Type of the exported weights: f32, f16 or bf16 [default: that in which they were imported, or f32]
    #[arg(long, value_name = "TYPE", conflicts_with = "from_hf")]
    pub dtype: Option<StoredType>,
    /// Most bytes of weights in an exported file; more are cut into several, with an index
    #[arg(long, value_name = "BYTES", default_value = "5GB", value_parser = shard_size, conflicts_with = "from_hf")]
    pub shard_size: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn shard_size(text: &str) -> Result<u64, SpecError> {
    ExportOptions::shard_size_of(text).map_err(|error| called("--shard-size", error))
}

/// Converts in the one direction or the other.
pub fn run(arguments: &ConvertArguments) -> Result<(), Failure> {
    match (&arguments.from_hf, &arguments.to_hf) {
        (Some(folder), _) => from_hugging_face(folder, arguments),
        (None, Some(folder)) => to_hugging_face(folder, arguments),
        (None, None) => Err(Failure::usage("give --from-hf or --to-hf".to_owned())),
    }
}

fn from_hugging_face(folder: &Path, arguments: &ConvertArguments) -> Result<(), Failure> {
    let mut source = Source::open(folder, &Settings::replaced_of_model(&arguments.set)?)?;
    let done = bars::counting(|watch| import_watched(&mut source, &arguments.checkpoint, watch))?;
    warn_not_finite(done.not_finite);
    let report = ImportedModelReport::new(source.model(), done);
    if arguments.json { print_json(&report) } else { print_text(report.text(folder)) }
}

fn to_hugging_face(folder: &Path, arguments: &ConvertArguments) -> Result<(), Failure> {
    let checkpoint = Checkpoint::find(&arguments.checkpoint).map_err(quadrille_hugging_face::HuggingFaceError::from)?;
    let path = checkpoint.path().to_owned();
    let options = ExportOptions { dtype: arguments.dtype, shard_size: arguments.shard_size };
    let (done, notes) = bars::counting(|watch| export_watched(checkpoint, folder, options, watch))?;
    for note in &notes {
        remark("note", note);
    }
    warn_not_finite(done.not_finite);
    let report = ExportedModelReport::new(&path, folder, done, notes);
    if arguments.json { print_json(&report) } else { print_text(report.text()) }
}

fn warn_not_finite(count: u64) {
    if count > 0 {
        remark("warning", &format!("{count} of the weights are infinite or not numbers"));
    }
}
