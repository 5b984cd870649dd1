//! `quadrille generate`: text that continues prompts.

use std::io::{ErrorKind, Write, stdout};
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use quadrille_data::TokenizerChoice;
use quadrille_engine::{EngineError, Sampling};
use quadrille_report::generation::GenerationReport;
use quadrille_run::{ChatSpec, Generation, GenerationSpec};

use crate::documents;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_exactly, print_json, remark, tell};
use crate::parse::{real, whole};
use crate::weights::{WeightsArguments, forward};

const EXAMPLES: &str = "Examples:
  quadrille generate --from runs/mine --prompt 'Once upon a time'
  quadrille generate --from gpt2 --prompt-file letter.txt --max-tokens 200 --temperature 0.7 --top-p 0.9 --stop
  quadrille generate --from runs/mine --prompt Yes --prompt No --temperature 0 --grid x=2,pipe=2 --json
  quadrille generate --from qwen --chat --prompt 'What is a mesh?' --system 'Answer in one sentence.'

Prompts begin with BOS where the tokenizer's own rule says so, as the transformers library
tokenizes them; tokens that the rule puts behind a text (an end token) are left out.
Keys and values of earlier tokens are cached: a pass has one token of each sequence. Every layout
draws the same tokens, but for rounding; ranks along context take sequences of their own.";

/// Continue text with a checkpoint's model.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true, group = ArgGroup::new("text").required(true).multiple(true))]
pub struct GenerateArguments {
    #[command(flatten)]
    pub weights: WeightsArguments,
    /// Text to continue; several times: several texts at once. An empty one begins a text
    #[arg(long, value_name = "TEXT", group = "text")]
    pub prompt: Vec<String>,
    /// A file whose text is continued
    #[arg(long, value_name = "FILE", group = "text")]
    pub prompt_file: Vec<PathBuf>,
    /// Most tokens behind each prompt; the model's sequence length ends it in any case
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole::<usize>(..))]
    pub max_tokens: usize,
    /// Below 1 likely tokens become likelier, above 1 all become more alike; 0 takes the likeliest
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = real)]
    pub temperature: f64,
    /// Draw from the K likeliest tokens only
    #[arg(long, value_name = "K", value_parser = whole::<usize>(..))]
    pub top_k: Option<usize>,
    /// Draw from the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", value_parser = real)]
    pub top_p: Option<f64>,
    /// Keys the draws
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(..))]
    pub seed: u64,
    /// Stop at the token that ends a document, and at those of the model's generation_config.json
    #[arg(long)]
    pub stop: bool,
    /// Answer each prompt: it becomes the user's message in the model's chat template; answers end as with --stop
    #[arg(long)]
    pub chat: bool,
    /// Text of a system message before the prompt
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Parse special tokens that prompts spell out, e.g. <|endoftext|>; without it they are ordinary text
    #[arg(long)]
    pub parse_special: bool,
    /// gpt2, bytes, or a tokenizer.json [default: the tokenizer.json beside the checkpoint, else what its run has read,
    /// else gpt2 if the model's vocabulary is large enough, else bytes]
    #[arg(long, value_name = "NAME|FILE.json")]
    pub tokenizer: Option<TokenizerChoice>,
    /// Print one JSON document at the end
    #[arg(long)]
    pub json: bool,
}

/// Generates, and shows text as it comes.
pub fn run(arguments: &GenerateArguments, launch: &Launch) -> Result<(), Failure> {
    let texts = texts(arguments)?;
    let generation = Generation::prepare(forward(&arguments.weights, launch)?, &texts, &arguments.spec(), launch)?;
    // One text is shown as it comes; several would mix.
    let live = launch.is_first() && !arguments.json && texts.len() == 1;
    if launch.is_first() && generation.is_chat() && !generation.has_end() {
        remark("warning", "no token is known to end an answer: it ends at --max-tokens");
    }
    let mut decoder = generation.decoder();
    let mut show = |_: usize, token: u32| {
        if live { write(&decoder.push(token).map_err(EngineError::of_callback)?) } else { Ok(()) }
    };
    if live && !generation.is_chat() {
        print_exactly(&texts[0])?;
    }
    let outcome = generation.run(&mut show);
    if live {
        print_exactly(&(decoder.finish()? + "\n"))?;
    }
    let outcome = outcome?;
    if !launch.is_first() {
        return Ok(());
    }
    let generated = generation.texts(&outcome)?;
    let report = GenerationReport::new(&generation, &texts, &generated, &outcome);
    if arguments.json {
        print_json(&report)?;
    } else {
        if !live {
            print_exactly(&report.text())?;
        }
        tell(&report.summary());
    }
    Failure::of_ledger(outcome.difference.as_ref())
}

impl GenerateArguments {
    /// How texts are continued.
    fn spec(&self) -> GenerationSpec {
        let Self { max_tokens, temperature, top_k, top_p, seed, stop, parse_special, .. } = *self;
        let sampling = Sampling { temperature, top_k, top_p, seed };
        let chat = self.chat.then(|| ChatSpec { system: self.system.clone() });
        GenerationSpec { max_tokens, sampling, stop, tokenizer: self.tokenizer.clone(), parse_special, chat }
    }
}

/// The prompts in the order: texts, then files.
fn texts(arguments: &GenerateArguments) -> Result<Vec<String>, Failure> {
    let files = arguments.prompt_file.iter().map(|path| documents::PROMPT.text(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(arguments.prompt.iter().cloned().chain(files).collect())
}

/// Writes text at once; a closed pipe ends the output, not the program.
fn write(text: &str) -> Result<(), EngineError> {
    let mut out = stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(EngineError::Output(error)),
        _ => Ok(()),
    }
}
