//! Texts that a checkpoint's model has continued.

use quadrille_engine::{Finish, GenerateOutcome};
use quadrille_run::{Generation, shown_layout};
use serde_json::{Value, json};

/// What a generation has written.
pub struct GenerationReport<'a> {
    /// What was continued by what.
    pub generation: &'a Generation,
    /// The prompts.
    pub texts: &'a [String],
    /// The text behind each of them.
    pub generated: &'a [String],
    /// What came of it.
    pub outcome: &'a GenerateOutcome,
}

impl GenerationReport<'_> {
    /// Every text, each under a line with its number.
    pub fn text(&self) -> String {
        let pairs = self.texts.iter().zip(self.generated).enumerate();
        let between = if self.generation.is_chat() { "\n" } else { "" };
        pairs.map(|(index, (prompt, text))| format!("== {} ==\n{prompt}{between}{text}\n", index + 1)).collect()
    }

    /// How fast it was, and which texts fill the model.
    pub fn summary(&self) -> String {
        let outcome = self.outcome;
        let mut text = format!(
            "first token after {:.3} s, {} tokens in {:.3} s, {:.1} tokens/s\n",
            outcome.first_token_seconds,
            tokens(outcome),
            outcome.seconds,
            rate(outcome),
        );
        let positions = self.generation.forward().model().seq_len;
        for (index, sequence) in outcome.sequences.iter().enumerate() {
            if sequence.finish == Finish::ModelLength {
                text += &format!("prompt {}: ended at the model's {positions} positions\n", index + 1);
            }
        }
        text
    }

    /// All of it, as `generate --json` prints it.
    pub fn document(&self) -> Value {
        let Self { generation, texts, generated, outcome } = self;
        let sequence = |index: usize| {
            let sequence = &outcome.sequences[index];
            json!({
                "prompt": texts[index],
                "prompt_tokens": generation.prompts()[index],
                "text": generated[index],
                "tokens": sequence.tokens,
                "finish": sequence.finish,
            })
        };
        let checkpoint = generation.forward().checkpoint();
        json!({
            "checkpoint": checkpoint.path().to_string_lossy(),
            "step": checkpoint.about().step,
            "model": checkpoint.about().model,
            "layout": shown_layout(&generation.programs().decode.layout),
            "sequences": (0..texts.len()).map(sequence).collect::<Vec<_>>(),
            "first_token_seconds": outcome.first_token_seconds,
            "seconds": outcome.seconds,
            "tokens_per_second": rate(outcome),
            "ledger": { "last_pass_of_rank_0": outcome.ledger, "equal": outcome.difference.is_none() },
        })
    }
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
