//! Text that continues prompts, by a checkpoint's model.

use quadrille_data::{DataError, Decoder, Tokenizer, TokenizerChoice};
use quadrille_engine::{EngineError, GenerateOptions, GenerateOutcome, GenerationPrograms, Sampling};

use crate::refusal::{Refusal, Setting};
use crate::{Forward, Processes, RunError, StatesSpec, TokenizerRule, resources};

/// How texts are continued.
#[derive(Debug, Clone)]
pub struct GenerationSpec {
    /// Most tokens behind each prompt, at least 1; the model's sequence length ends it in any case.
    pub max_tokens: usize,
    /// How a token is drawn.
    pub sampling: Sampling,
    /// Whether a text ends at the token that ends a document.
    pub stop: bool,
    /// By which tokenizer, as [`TokenizerRule`] takes it.
    pub tokenizer: Option<TokenizerChoice>,
}

/// A model and the prompts that it continues, ready to run.
pub struct Generation {
    forward: Forward,
    tokenizer: Tokenizer,
    prompts: Vec<Vec<u32>>,
    options: GenerateOptions,
    programs: GenerationPrograms,
}

impl Generation {
    /// Reads the prompts as tokens; an empty one begins a document.
    ///
    /// # Errors
    /// A model of patches; a tokenizer that is not the model's; what cannot be generated; a layout too large for this machine.
    pub fn prepare(
        forward: Forward,
        texts: &[String],
        spec: &GenerationSpec,
        processes: &Processes,
    ) -> Result<Self, RunError> {
        let (model, checkpoint) = (forward.model(), forward.checkpoint());
        if model.patch_values.is_some() {
            let rule = format!("{} reads patches of numbers, not text: it generates none", model.name);
            return Err(Refusal::new(rule).into());
        }
        let rule = TokenizerRule { choice: spec.tokenizer.as_ref(), checkpoint: Some(checkpoint), model };
        let (tokenizer, _) = rule.tokenizer()?;
        // What is found must be what the checkpoint's run has read.
        rule.check(&tokenizer.to_string(), &tokenizer.vocabulary())?;
        let prompts = texts.iter().map(|text| encode(&tokenizer, text)).collect::<Result<Vec<_>, _>>()?;
        let options = options(spec, &tokenizer)?;
        let programs =
            GenerationPrograms::new(model, forward.layout(), &options, &prompts).map_err(RunError::Ungenerated)?;
        resources::check(&programs.prefill, forward.options().threads, processes, &StatesSpec::Memory, 0)?;
        Ok(Self { forward, tokenizer, prompts, options, programs })
    }

    /// What generates.
    pub fn forward(&self) -> &Forward {
        &self.forward
    }

    /// The programs of the passes.
    pub fn programs(&self) -> &GenerationPrograms {
        &self.programs
    }

    /// The tokens of each prompt.
    pub fn prompts(&self) -> &[Vec<u32>] {
        &self.prompts
    }

    /// What makes text of tokens as they come.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.tokenizer.clone())
    }

    /// Continues all prompts; told every token as it comes, with the number of its prompt.
    ///
    /// # Errors
    /// The ranks' work; the callback's.
    pub fn run(
        &self,
        on_token: &mut (dyn FnMut(usize, u32) -> Result<(), EngineError> + Send),
    ) -> Result<GenerateOutcome, EngineError> {
        let Self { forward, prompts, options, programs, .. } = self;
        forward.device().generate(programs, options, forward.options(), &forward.weights(), prompts, on_token)
    }

    /// The text behind each prompt, what is no text shown as U+FFFD.
    ///
    /// # Errors
    /// Tokens that the tokenizer does not have.
    pub fn texts(&self, outcome: &GenerateOutcome) -> Result<Vec<String>, DataError> {
        outcome.sequences.iter().map(|sequence| self.text(&sequence.tokens)).collect()
    }

    fn text(&self, tokens: &[u32]) -> Result<String, DataError> {
        let mut decoder = self.decoder();
        let mut text = String::new();
        for token in tokens {
            text += &decoder.push(*token)?;
        }
        Ok(text + &decoder.finish()?)
    }
}

/// The tokens of a prompt; of an empty one the token between documents.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, DataError> {
    match tokenizer.end_of_document() {
        Some(token) if text.is_empty() => Ok(vec![token]),
        _ => tokenizer.encode(text),
    }
}

fn options(spec: &GenerationSpec, tokenizer: &Tokenizer) -> Result<GenerateOptions, Refusal> {
    let end = tokenizer.end_of_document();
    if spec.stop && end.is_none() {
        let rule = format!(": tokenizer {tokenizer} has no token that ends a document; leave it out");
        return Err(Refusal::of(Setting::Stop).text(rule));
    }
    if spec.max_tokens == 0 {
        return Err(Refusal::of(Setting::MaxTokens).text(" 0: at least one token is generated; use 1 or more"));
    }
    Ok(GenerateOptions {
        sampling: spec.sampling,
        stop: end.filter(|_| spec.stop),
        known_tokens: tokenizer.vocab(),
        holes: (0..tokenizer.vocab() as u32).filter(|token| !tokenizer.has(*token)).collect(),
        ..GenerateOptions::greedy(spec.max_tokens)
    })
}
