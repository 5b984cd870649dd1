//! The report of texts that a checkpoint's model continued.

use quadrille_engine::{Finish, GenerateOutcome};
use quadrille_run::{Generation, shown_layout};
use quadrille_spec::{LayoutFile, ModelFile, RankLedger};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ReportVersion;

/// Continued texts: what `generate --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenerationReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Folder of the checkpoint.
    pub checkpoint: String,
    /// Steps of its run.
    pub step: u64,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// The texts, one for each prompt.
    pub sequences: Vec<ContinuedText>,
    /// Seconds until the first token.
    pub first_token_seconds: f64,
    /// Seconds of all tokens.
    pub seconds: f64,
    /// Tokens per second after the first ones; of nothing but first ones, with the time for the prompts.
    pub tokens_per_second: f64,
    /// Ledger of the last pass.
    pub ledger: LastPassLedger,
    /// True if the prompts are messages of a chat; no part of documents.
    #[serde(skip)]
    pub is_chat: bool,
    /// Positions of the model; no part of documents.
    #[serde(skip)]
    pub positions: usize,
}

/// A prompt with the text behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContinuedText {
    /// The prompt.
    pub prompt: String,
    /// Its tokens.
    pub prompt_tokens: Vec<u32>,
    /// The text behind it.
    pub text: String,
    /// Tokens of that text.
    pub tokens: Vec<u32>,
    /// Reason why there are no more.
    pub finish: Finish,
}

/// Ledger of the last pass of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastPassLedger {
    /// Counted ledger of rank 0; null where no pass was left to do.
    pub last_pass_of_rank_0: Option<RankLedger>,
    /// True if all ledgers were as predicted, as integers.
    pub equal: bool,
}

impl GenerationReport {
    /// Report of prompts, the texts behind them, and the outcome.
    pub fn new(generation: &Generation, prompts: &[String], generated: &[String], outcome: &GenerateOutcome) -> Self {
        let forward = generation.forward();
        let checkpoint = forward.checkpoint();
        let continued = |(at, prompt): (usize, &String)| ContinuedText {
            prompt: prompt.clone(),
            prompt_tokens: generation.prompts()[at].clone(),
            text: generated[at].clone(),
            tokens: outcome.sequences[at].tokens.clone(),
            finish: outcome.sequences[at].finish,
        };
        Self {
            version: ReportVersion::CURRENT,
            checkpoint: checkpoint.path().to_string_lossy().into_owned(),
            step: checkpoint.about().step,
            model: ModelFile::of(&checkpoint.about().model),
            layout: shown_layout(&generation.programs().decode.layout),
            sequences: prompts.iter().enumerate().map(continued).collect(),
            first_token_seconds: outcome.first_token_seconds,
            seconds: outcome.seconds,
            tokens_per_second: rate(outcome),
            ledger: LastPassLedger { last_pass_of_rank_0: outcome.ledger.clone(), equal: outcome.difference.is_none() },
            is_chat: generation.is_chat(),
            positions: forward.model().seq_len,
        }
    }

    /// Every text, each under a line with its number.
    pub fn text(&self) -> String {
        let between = if self.is_chat { "\n" } else { "" };
        let text = |(at, continued): (usize, &ContinuedText)| {
            format!("== {} ==\n{}{between}{}\n", at + 1, continued.prompt, continued.text)
        };
        self.sequences.iter().enumerate().map(text).collect()
    }

    /// Lines on its speed, and on texts that fill the model.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "first token after {:.3} s, {} tokens in {:.3} s, {:.1} tokens/s\n",
            self.first_token_seconds,
            self.sequences.iter().map(|sequence| sequence.tokens.len()).sum::<usize>(),
            self.seconds,
            self.tokens_per_second,
        );
        for (at, sequence) in self.sequences.iter().enumerate() {
            if sequence.finish == Finish::ModelLength {
                text += &format!("prompt {}: ended at the model's {} positions\n", at + 1, self.positions);
            }
        }
        text
    }
}

/// Tokens per second after the first ones; of nothing but first ones, with the time for the prompts.
fn rate(outcome: &GenerateOutcome) -> f64 {
    let tokens: usize = outcome.sequences.iter().map(|sequence| sequence.tokens.len()).sum();
    match outcome.decode_passes {
        0 => tokens as f64 / outcome.seconds,
        _ => (tokens.saturating_sub(outcome.sequences.len())) as f64 / (outcome.seconds - outcome.first_token_seconds),
    }
}
