//! Flags that say what is read: for every command that takes text.

use std::path::PathBuf;

use crate::parse::real;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use quadrille_data::{Documents, Goldfish, InputFormat, TokenizerChoice};
use quadrille_run::{DataChanges, DataPath, HeldOut};

/// What samples are read from.
#[derive(Debug, Args)]
pub struct DataArguments {
    /// Text, JSON lines, Parquet, or tokens of `data prepare`, Megatron-LM (.bin and .idx) or llm.c; files or folders. Several are one
    /// source, or, with weights, a mixture: --data wiki.jsonl:0.7 code/:0.3 takes 70% of the samples from wiki.jsonl
    /// [default: a built-in corpus of known entropy; for models of patches built-in moving waves]
    #[arg(long, value_name = "PATH[:WEIGHT]", num_args = 1.., value_parser = weighted())]
    pub data: Vec<DataPath>,
    /// gpt2, bytes, or a tokenizer.json [default: the tokenizer.json beside the checkpoint that is read, else what
    /// its run has read, else gpt2 if the model's vocabulary is large enough, else bytes; text for an imported model other than
    /// GPT-2 needs one of the first two]
    #[arg(long, value_name = "NAME|FILE.json")]
    pub tokenizer: Option<TokenizerChoice>,
    /// The field of JSON lines, or column of Parquet files, that holds the text [default: text]
    #[arg(long, value_name = "FIELD")]
    pub text_field: Option<String>,
    /// Format of files that do not show theirs: auto (JSON lines by name or first line, otherwise text; doubtful files are refused),
    /// text, json-lines, parquet, or raw-u16 or raw-u32 (token ids without a header, as nanoGPT writes them) [default: auto]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<InputFormat>,
    /// Learn the bytes of files that are no text, too: pictures, archives, checkpoints are refused else
    #[arg(long)]
    pub force_binary: bool,
    /// Skip lines of JSON lines and rows of Parquet files that hold no text in the field, and report how many; without it the first
    /// is an error
    #[arg(long)]
    pub skip_bad_lines: bool,
    /// Parse special tokens that text spells out, e.g. <|endoftext|>; without it they are ordinary text
    #[arg(long)]
    pub parse_special: bool,
    /// packed: samples run over the ends of documents; respected: no sample does, the rest of a sample is padding: no tokens
    /// [default: packed]
    #[arg(long, value_name = "HOW")]
    pub documents: Option<Documents>,
    /// Keep this share of the tokens apart for validation, the last documents of every source, e.g. --validation 0.01
    #[arg(long, value_name = "SHARE", conflicts_with = "validation_data", value_parser = real)]
    pub validation: Option<f64>,
    /// Validate on these files or folders
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "data", value_parser = weighted())]
    pub validation_data: Vec<DataPath>,
    /// Leave one in k tokens out of the training loss, as a hash of the h tokens before it says: what is read again and
    /// again is not learned by heart, e.g. --goldfish k=2,h=13
    #[arg(long, value_name = "k=K,h=H")]
    pub goldfish: Option<Goldfish>,
    /// Folder for tokenised text [default: .quadrille-cache]
    #[arg(long, value_name = "FOLDER")]
    pub cache: Option<PathBuf>,
}

impl DataArguments {
    /// What was typed.
    pub fn said(&self) -> DataChanges {
        DataChanges {
            paths: (!self.data.is_empty()).then(|| self.data.clone()),
            tokenizer: self.tokenizer.clone(),
            text_field: self.text_field.clone(),
            format: self.format,
            binary: self.force_binary.then_some(true),
            skip_bad_lines: self.skip_bad_lines.then_some(true),
            parse_special: self.parse_special.then_some(true),
            documents: self.documents,
            held_out: match (self.validation, self.validation_data.as_slice()) {
                (Some(share), _) => Some(HeldOut::Share(share)),
                (None, []) => None,
                (None, files) => Some(HeldOut::Files(files.to_vec())),
            },
            goldfish: self.goldfish,
            cache: self.cache.clone(),
        }
    }
}

fn weighted() -> impl TypedValueParser<Value = DataPath> {
    OsStringValueParser::new().try_map(DataPath::read)
}
