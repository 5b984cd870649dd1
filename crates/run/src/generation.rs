//! Text that continues prompts, by a checkpoint's model.

use std::collections::BTreeSet;
use std::path::Path;
use std::slice;

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
    /// Reads the prompts as tokens, behind those that the tokenizer's own rule puts before a text; an empty one begins a text.
    /// Tokens that the rule puts behind a text are left out.
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
        let model = forward.model();
        let checkpoint = forward.checkpoint();
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

    /// True if any token ends a text.
    pub fn has_end(&self) -> bool {
        !self.options.stop.is_empty()
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
    // What the rule appends, as an end token, would end the text that is to be continued.
    let mut tokens = tokenizer.affixes().begin.clone();
    tokens.extend(tokenizer.encode_as(text, spec.parse_special)?);
    Ok(if tokens.is_empty() { tokenizer.beginning().into_iter().collect() } else { tokens })
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

/// Tokens that end a text: the tokenizer's, and `eos_token_id` of the `generation_config.json` of the checkpoint, or else of
/// the configuration that the model was imported with: one token or several.
fn ends(tokenizer: &Tokenizer, checkpoint: &Checkpoint) -> Result<BTreeSet<u32>, RunError> {
    let file = folder_with(checkpoint, &[GENERATION_CONFIG]).map(|folder| folder.join(GENERATION_CONFIG));
    let config = match &file {
        Some(path) => serde_json::from_slice(&COMPANION.bytes(path)?).map_err(|error| {
            let rule = format!("cannot read {}: it is no JSON: {error}; correct or remove it", path.display());
            Refusal::new(rule)
        })?,
        None => imported_config(checkpoint).cloned().unwrap_or_default(),
    };
    let path = file.as_deref().unwrap_or(checkpoint.path());
    Ok(end_ids(&config, path)?.into_iter().chain(tokenizer.end_of_document()).collect())
}

/// The ids of `eos_token_id` in the configuration of `path`: none, one or several.
fn end_ids(config: &Value, path: &Path) -> Result<Vec<u32>, Refusal> {
    let listed = match &config["eos_token_id"] {
        Value::Null => &[],
        Value::Array(tokens) => tokens.as_slice(),
        token => slice::from_ref(token),
    };
    let id = |token: &Value| {
        let id = token.as_u64().and_then(|token| u32::try_from(token).ok());
        id.ok_or_else(|| {
            let rule = "it is the id of a token, or a list of ids; correct or remove it";
            Refusal::new(format!("{}: eos_token_id {token}: {rule}", path.display()))
        })
    };
    listed.iter().map(id).collect()
}

/// The configuration that a model was imported with, if no run has read tokens of another tokenizer since.
fn imported_config(checkpoint: &Checkpoint) -> Option<&Value> {
    let origin = checkpoint.about().hugging_face.as_ref()?;
    (origin["other_tokenizer"] != true).then(|| &origin["config"])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn ends_are_ids_of_tokens() {
        let ids = |tokens: Value| end_ids(&json!({ "eos_token_id": tokens }), Path::new("g.json"));
        assert_eq!(ids(json!([7, 8])).unwrap(), [7, 8]);
        assert_eq!((ids(json!(7)).unwrap(), ids(Value::Null).unwrap()), (vec![7], Vec::new()));
        for wrong in [json!("</s>"), json!([7, -1]), json!(4_294_967_296_u64), json!([null])] {
            let message = ids(wrong.clone()).unwrap_err().to_string();
            assert!(message.starts_with("g.json: eos_token_id "), "{wrong}: {message}");
        }
    }

    /// A prompt is continued: the end token that the rule appends to texts is left out.
    #[test]
    fn prompts_have_no_appended_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let special = |id: u32, word: &str| {
            json!({ "id": id, "content": word, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": true })
        };
        let sequence =
            json!([{ "Sequence": { "id": "A", "type_id": 0 } }, { "SpecialToken": { "id": "</s>", "type_id": 0 } }]);
        let appended = json!({ "type": "TemplateProcessing", "single": sequence, "pair": sequence,
            "special_tokens": { "</s>": { "id": "</s>", "ids": [1], "tokens": ["</s>"] } } });
        let both = json!({ "type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0] });
        let spec = GenerationSpec {
            max_tokens: 1,
            sampling: Sampling::GREEDY,
            stop: false,
            tokenizer: None,
            parse_special: false,
            chat: None,
        };
        for (post_processor, text, expected) in
            [(&appended, "", &[0][..]), (&appended, "one", &[2]), (&both, "", &[0]), (&both, "one", &[0, 2])]
        {
            let tokenizer = json!({
                "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
                "added_tokens": [special(0, "<s>"), special(1, "</s>")], "pre_tokenizer": { "type": "Whitespace" },
                "post_processor": post_processor,
                "model": { "type": "WordLevel", "vocab": { "<s>": 0, "</s>": 1, "one": 2 }, "unk_token": "one" },
            });
            fs::write(&path, tokenizer.to_string()).unwrap();
            let tokenizer = Tokenizer::from_file(&path).unwrap();
            assert_eq!(encode(&tokenizer, text, &spec).unwrap(), expected, "{text:?}");
        }
    }
}
