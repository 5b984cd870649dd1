//! Text that continues prompts, by a checkpoint's model.

use std::collections::BTreeSet;

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{ChatMessage, DataError, Decoder, Tokenizer, TokenizerChoice};
use quadrille_engine::{EngineError, GenerateOptions, GenerateOutcome, GenerationPrograms, Sampling};

use quadrille_hugging_face::{COMPANION, GENERATION_CONFIG};
use serde_json::Value;

use crate::refusal::{Refusal, Setting};
use crate::tokenizer_rule::folder_with;
use crate::{Forward, Processes, RunError, StatesSpec, TokenizerRule, resources};

/// How texts are continued.
#[derive(Debug, Clone)]
pub struct GenerationSpec {
    /// Most tokens behind each prompt, at least 1; the model's sequence length ends it in any case.
    pub max_tokens: usize,
    /// How a token is drawn.
    pub sampling: Sampling,
    /// True if a text ends at the token that ends a document, and at those of the model's generation configuration. Answers of
    /// a chat do in any case.
    pub stop: bool,
    /// By which tokenizer, as [`TokenizerRule`] takes it.
    pub tokenizer: Option<TokenizerChoice>,
    /// True if special tokens that are spelled out in prompts are parsed.
    pub parse_special: bool,
    /// Chat that each prompt is a message of; `None`: prompts are continued.
    pub chat: Option<ChatSpec>,
}

/// Chats of one message of the user, which the model answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatSpec {
    /// Text of a system message before it.
    pub system: Option<String>,
}

/// A model and the prompts that it continues, ready to run.
pub struct Generation {
    forward: Forward,
    tokenizer: Tokenizer,
    prompts: Vec<Vec<u32>>,
    options: GenerateOptions,
    programs: GenerationPrograms,
    is_chat: bool,
}

impl Generation {
    /// Reads the prompts as tokens, with those that the tokenizer's own rule puts around a text; an empty one begins a text.
    ///
    /// # Errors
    /// A model of patches; a tokenizer that is not the model's, or has no chat template for a chat; what cannot be generated; a
    /// layout too large for this machine.
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
        let prompts = texts.iter().map(|text| encode(&tokenizer, text, spec)).collect::<Result<Vec<_>, _>>()?;
        let options = options(spec, &tokenizer, checkpoint)?;
        let programs =
            GenerationPrograms::new(model, forward.layout(), &options, &prompts).map_err(RunError::Ungenerated)?;
        resources::check(&programs.prefill, forward.options().threads, processes, &StatesSpec::Memory, 0)?;
        Ok(Self { forward, tokenizer, prompts, options, programs, is_chat: spec.chat.is_some() })
    }

    /// True if texts are answers, not continuations of the prompts.
    pub fn is_chat(&self) -> bool {
        self.is_chat
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

/// Tokens of a prompt, as text or as a chat; of an empty text the token that begins one.
fn encode(tokenizer: &Tokenizer, text: &str, spec: &GenerationSpec) -> Result<Vec<u32>, DataError> {
    if let Some(chat) = &spec.chat {
        let system = chat.system.as_deref().map(ChatMessage::system);
        let messages: Vec<ChatMessage> = system.into_iter().chain([ChatMessage::user(text)]).collect();
        return tokenizer.encode_chat(&messages);
    }
    let tokens = tokenizer.affixes().around(tokenizer.encode_as(text, spec.parse_special)?);
    Ok(if text.is_empty() && tokens.is_empty() { tokenizer.beginning().into_iter().collect() } else { tokens })
}

fn options(spec: &GenerationSpec, tokenizer: &Tokenizer, checkpoint: &Checkpoint) -> Result<GenerateOptions, RunError> {
    let stop = if spec.stop || spec.chat.is_some() { ends(tokenizer, checkpoint)? } else { BTreeSet::new() };
    if spec.stop && stop.is_empty() {
        let rule = format!(": tokenizer {tokenizer} has no token that ends a document; leave it out");
        return Err(Refusal::of(Setting::Stop).text(rule).into());
    }
    if spec.max_tokens == 0 {
        let refusal = Refusal::of(Setting::MaxTokens).text(" 0: at least one token is generated; use 1 or more");
        return Err(refusal.into());
    }
    Ok(GenerateOptions {
        sampling: spec.sampling,
        stop: stop.into_iter().collect(),
        known_tokens: tokenizer.vocab(),
        holes: (0..tokenizer.vocab() as u32).filter(|token| !tokenizer.has(*token)).collect(),
        ..GenerateOptions::greedy(spec.max_tokens)
    })
}

/// Tokens that end a text: the tokenizer's, and `eos_token_id` of the `generation_config.json` beside the checkpoint, or else of
/// the configuration that the model was imported with: one token or several.
fn ends(tokenizer: &Tokenizer, checkpoint: &Checkpoint) -> Result<BTreeSet<u32>, RunError> {
    let config = match folder_with(checkpoint, &[GENERATION_CONFIG]) {
        Some(folder) => {
            let path = folder.join(GENERATION_CONFIG);
            serde_json::from_slice(&COMPANION.bytes(&path)?).map_err(|error| {
                let rule = format!("cannot read {}: it is no JSON: {error}; correct or remove it", path.display());
                Refusal::new(rule)
            })?
        }
        None => checkpoint.about().hugging_face.as_ref().map_or(Value::Null, |origin| origin["config"].clone()),
    };
    let listed = match &config["eos_token_id"] {
        Value::Array(tokens) => tokens.clone(),
        token => vec![token.clone()],
    };
    let ids = listed.iter().filter_map(|token| u32::try_from(token.as_u64()?).ok());
    Ok(ids.chain(tokenizer.end_of_document()).collect())
}
