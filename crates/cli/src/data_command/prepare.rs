//! `quadrille data prepare`: text and tokens into a file of tokens.

use std::path::{Path, PathBuf};
use std::slice;
use std::time::Instant;

use clap::Args;
use quadrille_data::{
    Conversion, DataError, FileSurvey, InputFormat, OpenConversion, Reading, SpecialTokens, TextRules, TokenFormat,
    Tokenizer, TokenizerChoice, files, files_read,
};
use quadrille_report::conversion::TokensReport;
use quadrille_report::sources;
use quadrille_run::{SourceOverview, TokenizerOrigin, describe_tokenizer};

use crate::failure::Failure;
use crate::output::{print_json, print_text, tell};
use crate::{bars, flags, paths};

const EXAMPLES: &str = "Examples:
  quadrille data prepare books/ --out books                                          books.tokens, of GPT-2's byte pairs
  quadrille data prepare wiki.jsonl --text-field body --out wiki --tokenizer llama/tokenizer.json
  quadrille data prepare books.tokens --out books --format megatron                  books.bin and books.idx
  quadrille data prepare train.bin --input-format raw-u16 --tokenizer gpt2 --out train
  quadrille data prepare my_corpus.idx --tokenizer gpt2 --out my_corpus-llmc --format llm.c

A text file is a document, and so are a line of JSON lines and a row of a Parquet file;
each gets the tokenizer's end token, which in llm.c's files stands before it, and begins with
BOS where the tokenizer's own rule says so. Files of tokens keep their documents and their
tokens, with the end tokens that they have and no others.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PrepareArguments {
    /// Text, JSON lines, Parquet, or tokens (this program's, Megatron-LM's, llm.c's); files or folders, recognized by their content, or by
    /// --input-format
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// What the files begin with: PREFIX.tokens, PREFIX.bin and .idx for megatron, PREFIX.bin for llm.c; in place of what
    /// they hold
    #[arg(long, value_name = "PREFIX")]
    pub out: PathBuf,
    /// quadrille (with checksums and the tokenizer's identity), megatron, or llm.c (GPT-2's tokens only)
    #[arg(long, value_name = "FORMAT", default_value = "quadrille", value_parser = written_format)]
    pub format: TokenFormat,
    /// gpt2, bytes, or a tokenizer.json [default: that of the files of tokens; for text gpt2]
    #[arg(long, value_name = "NAME|FILE.json")]
    pub tokenizer: Option<TokenizerChoice>,
    /// Append the end token to those documents of files of tokens that lack it
    #[arg(long)]
    pub append_end: bool,
    /// The field of JSON lines, or column of Parquet files, that holds the text
    #[arg(long, value_name = "FIELD", default_value = "text")]
    pub text_field: String,
    /// Format of files that do not show theirs: auto (JSON lines by name or first line, otherwise text; doubtful files are refused),
    /// text, json-lines, parquet, or raw-u16 or raw-u32 (token ids without a header, as nanoGPT writes them)
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub input_format: InputFormat,
    /// Take the bytes of files that are no text, too: pictures, archives, checkpoints are refused else
    #[arg(long)]
    pub force_binary: bool,
    /// Skip lines of JSON lines and rows of Parquet files that hold no text in the field, and report how many; without it the first
    /// is an error
    #[arg(long)]
    pub skip_bad_lines: bool,
    /// Parse special tokens that text spells out, e.g. <|endoftext|>; without it they are ordinary text
    #[arg(long)]
    pub parse_special: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Reads a format that is written; one that is only read belongs to another flag.
fn written_format(name: &str) -> Result<TokenFormat, String> {
    name.parse().map_err(|error: DataError| match name.parse::<InputFormat>() {
        Ok(_) => format!("{error}; the format of the files that are read is --input-format {name}"),
        Err(_) => error.to_string(),
    })
}

/// Writes the files and says what is in them.
pub fn run(arguments: &PrepareArguments) -> Result<(), Failure> {
    // Here `--format` is that of what is written.
    prepare(arguments).map_err(|failure| failure.renamed("data.format", "--input-format"))
}

fn prepare(arguments: &PrepareArguments) -> Result<(), Failure> {
    let written = files(&arguments.out, arguments.format);
    let write: Vec<(&'static str, &Path)> = written.iter().map(|path| ("--out", path.as_path())).collect();
    let named = arguments.inputs.iter().filter(|path| path.is_file()).map(|path| ("the input", path.as_path()));
    let tokenizer = match &arguments.tokenizer {
        Some(TokenizerChoice::File(path)) => Some(("--tokenizer", path.as_path())),
        _ => None,
    };
    paths::check(&write, &named.chain(tokenizer).collect::<Vec<_>>())?;
    // Those in folders, and the other file of a pair.
    let rules = TextRules {
        field: &arguments.text_field,
        format: arguments.input_format,
        skip_bad_lines: arguments.skip_bad_lines,
    };
    let inputs = files_read(&arguments.inputs, rules)?;
    paths::check(&write, &inputs.iter().map(|path| ("the input", path.as_path())).collect::<Vec<_>>())?;
    let tokenizer = arguments.tokenizer.as_ref().map(TokenizerChoice::open).transpose()?;
    let named = tokenizer.is_some();
    let reading = Reading {
        tokenizer: tokenizer.unwrap_or(Tokenizer::Gpt2),
        text_field: arguments.text_field.clone(),
        format: arguments.input_format,
        binary: arguments.force_binary,
        skip_bad_lines: arguments.skip_bad_lines,
        special: SpecialTokens { parsed: arguments.parse_special, ..SpecialTokens::default() },
    };
    let conversion =
        Conversion { reading: &reading, named, format: arguments.format, append_end: arguments.append_end };
    let open = OpenConversion::new(&arguments.inputs, &conversion, &arguments.out)?;
    let files = bars::waiting("counting documents", || open.survey())?;
    let read = SourceOverview::of_files(&files);
    let tokenizer = tokenizer_and_reason(&files, &reading, named)?;
    if !arguments.json {
        tell(&sources::text(slice::from_ref(&read), Some(&tokenizer)));
    }
    let start = Instant::now();
    let converted = bars::preparing(|told| open.run(&mut |done, total| told(done, total)))?;
    let seconds = start.elapsed().as_secs_f64();
    let report = TokensReport::new(&read, &tokenizer, &converted, arguments.format, seconds);
    if arguments.json { print_json(&report) } else { print_text(flags::spelled(&report.text())) }
}

/// The tokenizer of what is written, and the reason for it.
fn tokenizer_and_reason(files: &[FileSurvey], reading: &Reading, named: bool) -> Result<String, DataError> {
    let origin = if named { TokenizerOrigin::Named } else { TokenizerOrigin::WithoutModel };
    if files.iter().any(|file| !file.format.is_tokens()) {
        return describe_tokenizer(reading, origin);
    }
    if named {
        return Ok(format!("{}, {}", reading.tokenizer, origin.reason()));
    }
    Ok(TokenizerOrigin::of_tokens(files.iter().find_map(|file| file.vocabulary)))
}
