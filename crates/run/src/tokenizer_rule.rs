//! Which tokenizer is taken: one rule for training, evaluation and generation.
//!
//! The one that was named; else the `tokenizer.json` beside the checkpoint that is read; else what the checkpoint's run
//! has read, if it is built in; else a built-in one that the model has the tokens for. Where a checkpoint says whose
//! tokens its run has read, no others will do: the same number would stand for different text. For an imported model
//! nothing is guessed: text is read by a tokenizer that was named or lies beside it; GPT-2 itself has the built-in one.

use std::path::{Path, PathBuf};

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{SpecialTokens, TextRules, Tokenizer, TokenizerChoice, Vocabulary, formats};
use quadrille_spec::Model;
use serde_json::Value;

use crate::RunError;
use crate::refusal::{Refusal, Setting};

/// The name of a tokenizer's file beside a model.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// Reason for the choice of a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerOrigin {
    /// It was named.
    Named,
    /// Its file lies beside the checkpoint, in this folder.
    Beside(PathBuf),
    /// The checkpoint's run has read its tokens.
    Recorded,
    /// The model's vocabulary has all of its tokens, and nothing says more.
    Usual,
    /// Text is tokenized without a model, and nothing says more.
    WithoutModel,
}

impl TokenizerOrigin {
    /// The tokenizer of files of tokens alone, in words.
    pub fn of_tokens(vocabulary: Option<Vocabulary>) -> String {
        match vocabulary {
            Some(vocabulary) => format!("{}, as the files of tokens say", vocabulary.name),
            None => "of an unknown tokenizer: the files of tokens do not say it".to_owned(),
        }
    }

    /// The reason in words, to be put after the tokenizer's name.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Named => "as named",
            Self::Beside(_) => "of the checkpoint's folder",
            Self::Recorded => "as the run of the checkpoint",
            Self::Usual => "by default for the model's vocabulary",
            Self::WithoutModel => "by default for text",
        }
    }
}

/// What decides on the tokenizer.
#[derive(Clone, Copy)]
pub struct TokenizerRule<'a> {
    /// The one that was named.
    pub choice: Option<&'a TokenizerChoice>,
    /// The checkpoint whose parameters are read, if any are.
    pub checkpoint: Option<&'a Checkpoint>,
    /// The model that takes the tokens.
    pub model: &'a Model,
}

impl TokenizerRule<'_> {
    /// The tokenizer of the rule, for text; that of a run without any `tokenizer.json` is not found, so what is read with
    /// this one is to be held against [`Self::check`].
    ///
    /// # Errors
    /// A file that holds none; a named one that is not the checkpoint's or has more tokens than the model; an imported model
    /// whose tokenizer is not known.
    pub fn tokenizer(&self) -> Result<(Tokenizer, TokenizerOrigin), RunError> {
        let (tokenizer, origin) = self.usual()?;
        match self.imported().filter(|_| origin == TokenizerOrigin::Usual) {
            Some(refusal) => Err(refusal.into()),
            None => Ok((tokenizer, origin)),
        }
    }

    /// The tokenizer of the rule for files and folders, one or several; files of tokens alone do not need it to be known.
    ///
    /// # Errors
    /// Those of [`Self::tokenizer`]; files that cannot be read or are doubtful.
    pub fn tokenizer_for(&self, paths: &[PathBuf], rules: TextRules) -> Result<(Tokenizer, TokenizerOrigin), RunError> {
        let formats = formats(paths, rules)?;
        rules.check(formats.iter().copied())?;
        if formats.iter().all(|format| format.is_tokens()) { self.usual() } else { self.tokenizer() }
    }

    fn usual(&self) -> Result<(Tokenizer, TokenizerOrigin), RunError> {
        if let Some(choice) = self.choice {
            let tokenizer = choice.open()?;
            self.check(&tokenizer.to_string(), &tokenizer.vocabulary())?;
            return Ok((tokenizer, TokenizerOrigin::Named));
        }
        let beside = self.checkpoint.and_then(|checkpoint| folder_with(checkpoint, &[TOKENIZER_FILE]));
        Ok(match (beside, self.recorded()) {
            (Some(folder), _) => (Tokenizer::from_file(&folder.join(TOKENIZER_FILE))?, TokenizerOrigin::Beside(folder)),
            (None, Some("gpt2")) => (Tokenizer::Gpt2, TokenizerOrigin::Recorded),
            (None, Some("bytes")) => (Tokenizer::Bytes, TokenizerOrigin::Recorded),
            (None, _) if self.model.vocab >= Tokenizer::Gpt2.vocab() => (Tokenizer::Gpt2, TokenizerOrigin::Usual),
            (None, _) => (Tokenizer::Bytes, TokenizerOrigin::Usual),
        })
    }

    /// Refusal of text for an imported model that is not GPT-2.
    fn imported(&self) -> Option<Refusal> {
        let checkpoint = self.checkpoint?;
        let config = &checkpoint.about().hugging_face.as_ref()?["config"];
        let family = config["model_type"].as_str().unwrap_or("model");
        if (family, self.model.vocab) == ("gpt2", Tokenizer::Gpt2.vocab()) {
            return None;
        }
        let rule = format!(
            "{}: it is an imported {family} without a {TOKENIZER_FILE} beside it, and nothing says which text its {} ids stand for; \
             name its tokenizer with ",
            checkpoint.path().display(),
            self.model.vocab
        );
        Some(Refusal::new(rule).name(Setting::Tokenizer))
    }

    /// Refuses tokens, those of the tokenizer or file `name`, that the model has not, or that are not those which the
    /// checkpoint's run has read.
    ///
    /// # Errors
    /// One naming both.
    pub fn check(&self, name: &str, vocabulary: &Vocabulary) -> Result<(), Refusal> {
        let size = vocabulary.size;
        let known = self.model.vocab;
        if size > known {
            let rule = format!("tokenizer {name} has {size} ids but the model's vocabulary has {known}; use ");
            return Err(match self.checkpoint {
                Some(_) => {
                    let refusal = Refusal::new(rule + "the ").name(Setting::Tokenizer);
                    refusal.text(" that the model was trained with")
                }
                None => {
                    let refusal = Refusal::new(rule).name(Setting::Vocabulary).text(format!("={size}, or another "));
                    refusal.name(Setting::Tokenizer)
                }
            });
        }
        let found = vocabulary.name.to_string();
        match (self.checkpoint, self.recorded()) {
            (Some(checkpoint), Some(recorded)) if recorded != found => {
                let tokenizer = if name == found { String::new() } else { format!(" ({name})") };
                let rule = format!(
                    "the run of {} has read tokens of {recorded}, and these are of {found}{tokenizer}; ",
                    checkpoint.path().display()
                );
                let refusal = match recorded {
                    "gpt2" | "bytes" => {
                        Refusal::new(rule + "use ").name(Setting::Tokenizer).text(format!(" {recorded}"))
                    }
                    _ => {
                        let remedy = "name the tokenizer.json that the run was given with ";
                        Refusal::new(rule + remedy).name(Setting::Tokenizer)
                    }
                };
                Err(refusal.text(", or tokens made with it"))
            }
            _ => Ok(()),
        }
    }

    fn recorded(&self) -> Option<&str> {
        recorded(&self.checkpoint?.about().data)
    }
}

/// Whose tokens a run has read, as [`crate::source::Source::about`] says; `None` where that is not known.
pub fn recorded(data: &Value) -> Option<&str> {
    // Runs of text on files have always said so for each source.
    data["vocabulary"].as_str().or(data["sources"][0]["vocabulary"].as_str())
}

/// Special tokens of the documents of text that the run of a checkpoint has read; those of a new run where it has read none.
pub fn recorded_special(checkpoint: &Checkpoint) -> SpecialTokens {
    special_of(&checkpoint.about().data)
}

fn special_of(data: &Value) -> SpecialTokens {
    let recorded = &data["special_tokens"];
    let has_any = |field: &str| recorded[field].as_array().is_some_and(|tokens| !tokens.is_empty());
    let added = has_any("begin") || has_any("end");
    // A run of text records them where it has any.
    if added || recorded.is_object() || reads_text(data) {
        return SpecialTokens { added, parsed: recorded["parsed"] == true };
    }
    SpecialTokens::default()
}

/// True if the tokens of a source lie in another file than the one that was named.
fn reads_text(data: &Value) -> bool {
    let stem = |path: &Value| path.as_str().and_then(|path| Path::new(path).file_stem().map(ToOwned::to_owned));
    let is_text = |source: &Value| {
        let files = source["files"].as_array();
        files.and_then(|files| files.first()).is_some_and(|file| stem(&file["path"]) != stem(&source["path"]))
    };
    data["kind"] == "files" && data["sources"].as_array().into_iter().flatten().any(is_text)
}

/// The folder with any of the files that belong to a checkpoint: its own, that of the checkpoints it is one of, or the
/// run's around that one. A checkpoint that stands alone has no other: what lies beside it is of something else.
pub fn folder_with(checkpoint: &Checkpoint, names: &[&str]) -> Option<PathBuf> {
    // The parent of a relative path may be empty, which would be the working directory.
    let own = checkpoint.path().canonicalize().ok()?;
    let is_of_a_run = own.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"step-"));
    let of_all = own.parent().filter(|_| is_of_a_run);
    let around = of_all.filter(|folder| folder.file_name().is_some_and(|name| name == "checkpoints"));
    let has_any = |folder: &&Path| names.iter().any(|name| folder.join(name).is_file());
    [Some(own.as_path()), of_all, around.and_then(Path::parent)].into_iter().flatten().find(has_any).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn special_tokens_are_those_of_the_run() {
        let source = |path: &str, files: Value| json!([{ "path": path, "files": files }]);
        let text = || source("cache/gpt2-00ff.tokens", json!([{ "path": "a.txt" }]));
        let tokens = || source("/x/a.tokens", json!([{ "path": "/x/a.tokens" }]));
        let special = |parsed: bool| json!({ "begin": [1], "end": [], "parsed": parsed });
        let parsed = json!({ "begin": [], "end": [], "parsed": true });
        for (kind, sources, recorded, added, is_parsed) in [
            ("files", text(), Value::Null, false, false),
            ("files", text(), special(false), true, false),
            ("files", text(), special(true), true, true),
            ("files", text(), parsed, false, true),
            ("files", tokens(), Value::Null, true, false),
            ("demo", json!([]), Value::Null, true, false),
        ] {
            let data = json!({ "kind": kind, "sources": sources, "special_tokens": recorded });
            assert_eq!(special_of(&data), SpecialTokens { added, parsed: is_parsed }, "{data}");
        }
        assert_eq!(special_of(&Value::Null), SpecialTokens::default());
    }
}
