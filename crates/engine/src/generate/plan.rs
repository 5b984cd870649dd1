//! What is to be generated, and the programs of its passes.

use quadrille_spec::{Layout, Model};
use quadrille_step::{Generation, Purpose, StepProgram, Wanted};

use super::Sampling;
use crate::EngineError;

/// What is generated.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens behind each prompt.
    pub max_tokens: usize,
    /// How a token is drawn.
    pub sampling: Sampling,
    /// Tokens that end a sequence and are no part of it.
    pub stop: Vec<u32>,
    /// Only tokens below this are drawn: a model may have room for more than its tokenizer has.
    pub known_tokens: usize,
    /// Tokens below that which are not drawn either: a tokenizer may leave holes.
    pub holes: Vec<u32>,
    /// Most tokens of a prompt in one pass: its memory grows with them.
    pub prompt_chunk: usize,
}

impl GenerateOptions {
    /// Most tokens of a prompt in one pass, if nothing else is said.
    pub const PROMPT_CHUNK: usize = 512;

    /// So many of the most likely tokens.
    pub fn greedy(max_tokens: usize) -> Self {
        Self {
            max_tokens,
            sampling: Sampling::GREEDY,
            stop: Vec::new(),
            known_tokens: usize::MAX,
            holes: Vec::new(),
            prompt_chunk: Self::PROMPT_CHUNK,
        }
    }
}

/// The programs of the passes over prompts and of those with one token of each sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationPrograms {
    /// Passes over prompts.
    pub prefill: StepProgram,
    /// Passes with one token of each sequence.
    pub decode: StepProgram,
}

impl GenerationPrograms {
    /// The programs for prompts on the ranks of `layout`; [`Layout::for_generation`] says how.
    ///
    /// # Errors
    /// A prompt that is empty, has unknown tokens or leaves no room in the model's positions; options that draw nothing;
    /// a model that cannot generate; a layout that does not fit it.
    pub fn new(
        model: &Model,
        layout: &Layout,
        options: &GenerateOptions,
        prompts: &[Vec<u32>],
    ) -> Result<Self, EngineError> {
        options.sampling.check()?;
        for (index, prompt) in prompts.iter().enumerate() {
            check_prompt(model, index, prompt)?;
        }
        if options.max_tokens == 0 || options.prompt_chunk == 0 || options.known_tokens == 0 {
            let rule = "at least one token is known and generated, and a pass over prompts has at least one".to_owned();
            return Err(EngineError::Generation { rule, remedy: "use 1 or more".to_owned() });
        }
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let capacity = longest.saturating_add(options.max_tokens).min(model.seq_len);
        // Chunks as equal as possible: the last one is not padded to a whole one.
        let chunk = longest.div_ceil(longest.div_ceil(options.prompt_chunk).max(1)).max(1);
        let generation = Generation { capacity, wanted: Wanted::Newest };
        let program = |tokens| -> Result<StepProgram, EngineError> {
            let layout = layout.for_generation(model, prompts.len(), tokens)?;
            Ok(StepProgram::generation(model, &layout, generation)?)
        };
        Ok(Self { prefill: program(chunk)?, decode: program(1)? })
    }

    /// Positions of a sequence that the caches have room for.
    pub fn capacity(&self) -> usize {
        match self.decode.stages[0].purpose {
            Purpose::Generation(generation) => generation.capacity,
            _ => 0,
        }
    }
}

/// Refuses prompts that the model cannot continue.
pub(super) fn check_prompt(model: &Model, index: usize, prompt: &[u32]) -> Result<(), EngineError> {
    let refuse = |rule: String, remedy: &str| {
        Err(EngineError::Generation { rule: format!("prompt {}: {rule}", index + 1), remedy: remedy.to_owned() })
    };
    if prompt.is_empty() {
        return refuse("it has no tokens, and a model continues at least one".to_owned(), "give some text");
    }
    if prompt.len() >= model.seq_len {
        let rule = format!("its {} tokens leave no room in the model's {} positions", prompt.len(), model.seq_len);
        return refuse(rule, "use a shorter prompt");
    }
    match prompt.iter().find(|token| **token as usize >= model.vocab) {
        Some(token) if model.patch_values.is_none() => {
            Err(EngineError::UnknownToken { token: *token, vocab: model.vocab })
        }
        _ => Ok(()),
    }
}
