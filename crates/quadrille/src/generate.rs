//! `quadrille generate`: text that continues prompts.

use std::io::{ErrorKind, Write, stdout};
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use quadrille_data::{Decoder, Tokenizer, TokenizerChoice};
use quadrille_engine::{
    EngineError, Finish, GenerateOptions, GenerateOutcome, GenerationPrograms, Sampling, generate_on_cpu,
};
use quadrille_run::{TokenizerRule, layout_json, resources};
use quadrille_spec::Model;
use serde_json::{Value, json};

use crate::documents;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_exactly, print_json, tell};
use crate::weights::{Opened, WeightsArguments};

const EXAMPLES: &str = "Examples:
  quadrille generate --from runs/mine --prompt 'Once upon a time'
  quadrille generate --from gpt2 --prompt-file letter.txt --max-tokens 200 --temperature 0.7 --top-p 0.9 --stop
  quadrille generate --from runs/mine --prompt Yes --prompt No --temperature 0 --grid x=2,pipe=2 --json

Keys and values of earlier tokens are cached: a pass has one token of each sequence. Every layout
draws the same tokens, but for rounding; ranks along context take sequences of their own.";

/// Continue text with a checkpoint's model.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true, group = ArgGroup::new("text").required(true).multiple(true))]
pub struct GenerateArguments {
    #[command(flatten)]
    pub weights: WeightsArguments,
    /// Text to continue; several times: several texts at once. An empty one begins a document
    #[arg(long, value_name = "TEXT", group = "text")]
    pub prompt: Vec<String>,
    /// A file whose text is continued
    #[arg(long, value_name = "FILE", group = "text")]
    pub prompt_file: Vec<PathBuf>,
    /// Most tokens behind each prompt; the model's sequence length ends it in any case
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub max_tokens: usize,
    /// Below 1 likely tokens become likelier, above 1 all become more alike; 0 takes the likeliest
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub temperature: f64,
    /// Draw from the K likeliest tokens only
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Draw from the likeliest tokens that together have this probability
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,
    /// Keys the draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Stop at the token that ends a document
    #[arg(long)]
    pub stop: bool,
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
    let opened = Opened::new(&arguments.weights, launch)?;
    let model = opened.model();
    let tokenizer = tokenizer(arguments, &opened)?;
    let prompts = texts.iter().map(|text| encode(&tokenizer, text)).collect::<Result<Vec<_>, _>>()?;
    let options = options(arguments, &tokenizer)?;
    let unfit = |error: EngineError| Failure::Usage(error.into());
    let programs = GenerationPrograms::new(model, &opened.layout, &options, &prompts).map_err(unfit)?;
    resources::check(&programs.prefill, opened.options.threads, launch, 0)?;
    // One text is shown as it comes; several would mix.
    let live = launch.is_first() && !arguments.json && texts.len() == 1;
    let mut decoder = Decoder::new(tokenizer.clone());
    let mut show = |_: usize, token: u32| match live {
        true => write(&decoder.push(token).map_err(EngineError::of_callback)?),
        false => Ok(()),
    };
    if live {
        print_exactly(&texts[0])?;
    }
    let (run, weights) = (&opened.options, opened.weights());
    let outcome = generate_on_cpu(&programs, &options, run, &weights, &prompts, &mut show);
    if live {
        print_exactly(&(decoder.finish()? + "\n"))?;
    }
    let outcome = outcome?;
    if !launch.is_first() {
        return Ok(());
    }
    let generated = outcome.sequences.iter().map(|sequence| decode(&tokenizer, &sequence.tokens));
    let generated = generated.collect::<Result<Vec<String>, Failure>>()?;
    if arguments.json {
        print_json(&document(&opened, &programs, &texts, &prompts, &generated, &outcome))?;
    } else {
        if !live {
            print_exactly(&several(&texts, &generated))?;
        }
        tell(&summary(model, &outcome));
    }
    Failure::of_ledger(outcome.difference.as_ref())
}

/// The prompts in the order: texts, then files.
fn texts(arguments: &GenerateArguments) -> Result<Vec<String>, Failure> {
    let files = arguments.prompt_file.iter().map(|path| documents::PROMPT.text(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(arguments.prompt.iter().cloned().chain(files).collect())
}

/// By the rule of all commands; what it finds must be what the checkpoint's run has read.
fn tokenizer(arguments: &GenerateArguments, opened: &Opened) -> Result<Tokenizer, Failure> {
    let model = opened.model();
    if model.patch_values.is_some() {
        return Err(Failure::usage(format!("{} reads patches of numbers, not text: it generates none", model.name)));
    }
    let checkpoint = Some(opened.checkpoint.as_ref());
    let rule = TokenizerRule { choice: arguments.tokenizer.as_ref(), checkpoint, model };
    let tokenizer = rule.tokenizer()?;
    rule.check(&tokenizer.to_string(), &tokenizer.vocabulary())?;
    Ok(tokenizer)
}

/// The tokens of a prompt; of an empty one the token between documents.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, Failure> {
    match tokenizer.end_of_document() {
        Some(token) if text.is_empty() => Ok(vec![token]),
        _ => Ok(tokenizer.encode(text)?),
    }
}

/// The text of tokens, what is no text shown as U+FFFD.
fn decode(tokenizer: &Tokenizer, tokens: &[u32]) -> Result<String, Failure> {
    let mut decoder = Decoder::new(tokenizer.clone());
    let mut text = String::new();
    for token in tokens {
        text += &decoder.push(*token)?;
    }
    Ok(text + &decoder.finish()?)
}

fn options(arguments: &GenerateArguments, tokenizer: &Tokenizer) -> Result<GenerateOptions, Failure> {
    let end = tokenizer.end_of_document();
    if arguments.stop && end.is_none() {
        return Err(Failure::usage(format!(
            "--stop: tokenizer {tokenizer} has no token that ends a document; leave it out"
        )));
    }
    if arguments.max_tokens == 0 {
        return Err(Failure::usage("--max-tokens 0: at least one token is generated; use 1 or more".to_owned()));
    }
    let GenerateArguments { max_tokens, temperature, top_k, top_p, seed, .. } = *arguments;
    Ok(GenerateOptions {
        sampling: Sampling { temperature, top_k, top_p, seed },
        stop: end.filter(|_| arguments.stop),
        known_tokens: tokenizer.vocab(),
        holes: (0..tokenizer.vocab() as u32).filter(|token| !tokenizer.has(*token)).collect(),
        ..GenerateOptions::greedy(max_tokens)
    })
}

/// Writes text at once; a closed pipe ends the output, not the program.
fn write(text: &str) -> Result<(), EngineError> {
    let mut out = stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(EngineError::Output(error)),
        _ => Ok(()),
    }
}

/// Several texts, each under a line with its number.
fn several(texts: &[String], generated: &[String]) -> String {
    let pairs = texts.iter().zip(generated).enumerate();
    pairs.map(|(index, (prompt, text))| format!("== {} ==\n{prompt}{text}\n", index + 1)).collect()
}

/// How fast it was, and which texts fill the model.
fn summary(model: &Model, outcome: &GenerateOutcome) -> String {
    let mut text = format!(
        "first token after {:.3} s, {} tokens in {:.3} s, {:.1} tokens/s\n",
        outcome.first_token_seconds,
        tokens(outcome),
        outcome.seconds,
        rate(outcome),
    );
    for (index, sequence) in outcome.sequences.iter().enumerate() {
        if sequence.finish == Finish::ModelLength {
            text += &format!("prompt {}: ended at the model's {} positions\n", index + 1, model.seq_len);
        }
    }
    text
}

fn tokens(outcome: &GenerateOutcome) -> usize {
    outcome.sequences.iter().map(|sequence| sequence.tokens.len()).sum()
}

/// Tokens per second after the first ones; of nothing but first ones, with the time for the prompts.
fn rate(outcome: &GenerateOutcome) -> f64 {
    match outcome.decode_passes {
        0 => tokens(outcome) as f64 / outcome.seconds,
        _ => {
            (tokens(outcome).saturating_sub(outcome.sequences.len())) as f64
                / (outcome.seconds - outcome.first_token_seconds)
        }
    }
}

fn document(
    opened: &Opened,
    programs: &GenerationPrograms,
    texts: &[String],
    prompts: &[Vec<u32>],
    generated: &[String],
    outcome: &GenerateOutcome,
) -> Value {
    let sequence = |index: usize| {
        let sequence = &outcome.sequences[index];
        json!({
            "prompt": texts[index],
            "prompt_tokens": prompts[index],
            "text": generated[index],
            "tokens": sequence.tokens,
            "finish": sequence.finish,
        })
    };
    let about = opened.checkpoint.about();
    json!({
        "checkpoint": opened.checkpoint.path(),
        "step": about.step,
        "model": about.model,
        "layout": layout_json(&programs.decode.layout),
        "sequences": (0..texts.len()).map(sequence).collect::<Vec<_>>(),
        "first_token_seconds": outcome.first_token_seconds,
        "seconds": outcome.seconds,
        "tokens_per_second": rate(outcome),
        "ledger": { "last_pass_of_rank_0": outcome.ledger, "equal": outcome.difference.is_none() },
    })
}
