//! What a run reads: files of text or tokens, the built-in corpus, or the built-in waves.

mod identity;
mod open;
mod overview;
mod tokenizer;

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{DataError, Goldfish, Mixture, TokenSource, Vocabulary, Waves, Windows, fill_batch};
use quadrille_engine::{EngineError, Samples};
use quadrille_spec::Model;
use serde::Serialize;
use serde_json::Value;

use self::identity::{FileIdentity, FilesRead, SourceIdentity};
use self::tokenizer::{SpecialTokensRead, UsedTokenizer};
use crate::refusal::{Refusal, Setting};
use crate::tokenizer_rule::TokenizerRule;
use crate::{DataSpec, RunError};

pub use open::open_files;
pub use overview::{SkippedFile, SourceOverview};
pub use tokenizer::describe_tokenizer;

/// Tokens of the built-in corpus.
pub const DEMO_TOKENS: usize = 1 << 20;
/// Turns the run's seed into that of what validation reads, where both are built in.
const VALIDATION_SEED: u64 = 0x7661_6c69_6461_7465;

/// Told how many bytes of how many are read while text becomes tokens.
pub type OnPreparation<'a> = &'a dyn Fn(u64, u64);

/// Samples for training as a function of (seed, step, number), and for validation as one of (seed, number).
pub struct Source {
    kind: Kind,
    seed: u64,
    seq_len: usize,
    goldfish: Option<Goldfish>,
    /// What the samples are, for documents.
    about: Value,
    /// The tokenizer of text.
    tokenizer: Option<UsedTokenizer>,
}

/// What is read, and the tokenizer of its text.
type KindOfText = (Kind, Option<UsedTokenizer>);

enum Kind {
    Files { training: Mixture, validation: Option<Mixture>, files: FilesRead },
    Demo { training: Box<TokenSource>, validation: Option<Box<TokenSource>> },
    Waves { training: Waves, validation: Option<Waves> },
}

impl Source {
    /// Files, of which text is tokenised once, or, without any, what is built in for the kind of model. Where `checkpoint`
    /// says whose tokens its run has read, only those will do.
    ///
    /// # Errors
    /// Choices that do not fit each other or the model; files that cannot be read.
    pub fn open(
        spec: &DataSpec,
        checkpoint: Option<&Checkpoint>,
        model: &Model,
        seed: u64,
        seq_len: usize,
        on_preparation: OnPreparation,
    ) -> Result<Self, RunError> {
        if let Some(goldfish) = spec.goldfish.filter(|goldfish| goldfish.context() > seq_len) {
            let h = goldfish.context();
            let k = goldfish;
            let rule = format!(
                " {k}: samples of {seq_len} tokens have none with {h} before it; use an h of {seq_len} at most, or longer \
                 sequences"
            );
            return Err(Refusal::of(Setting::Goldfish).text(rule).into());
        }
        let rule = TokenizerRule { choice: spec.tokenizer.as_ref(), checkpoint, model };
        let (kind, tokenizer) = match model.patch_values {
            Some(values) => (open::waves(spec, model, seed, seq_len, values)?, None),
            None if spec.paths.is_empty() => open::demo(spec, rule, seed, seq_len)?,
            None => open::files(spec, rule, seed, seq_len, on_preparation)?,
        };
        let about = kind.about(spec, tokenizer.as_ref())?;
        let source = Self { kind, seed, seq_len, goldfish: spec.goldfish, about, tokenizer };
        source.check_first(model)?;
        Ok(source)
    }

    /// Reads one sample of each kind: what cannot be read at all is found before ranks start or files are written.
    fn check_first(&self, model: &Model) -> Result<(), RunError> {
        if model.patch_values.is_some() {
            return Ok(());
        }
        let mut tokens = vec![0; self.seq_len];
        let mut targets = vec![0; self.seq_len];
        let unreadable = |error: EngineError| match error {
            EngineError::Callback(error) => match error.downcast::<DataError>() {
                Ok(error) => RunError::from(*error),
                Err(error) => RunError::from(EngineError::Callback(error)),
            },
            other => RunError::from(other),
        };
        self.fill(1, 0, 0, Samples::Tokens { inputs: &mut tokens, targets: &mut targets }).map_err(unreadable)?;
        self.fill_validation(0, Samples::Tokens { inputs: &mut tokens, targets: &mut targets }).map_err(unreadable)
    }

    /// The least expected loss, where it is known, with what it is.
    pub fn floor(&self) -> Option<(f64, &'static str)> {
        match &self.kind {
            Kind::Files { .. } => None,
            Kind::Demo { training, .. } => {
                let floor = training.window_floor(self.seq_len)?;
                Some((floor, "nats per token: the entropy of the built-in corpus in such windows"))
            }
            Kind::Waves { .. } => {
                Some((0.0, "mean squared error: the built-in waves move as they must; of zeros it is 1"))
            }
        }
    }

    /// Where the samples are from and how they are drawn, for checkpoints and logs: runs with equal descriptions, seeds and
    /// lengths read the same samples.
    pub fn about(&self) -> &Value {
        &self.about
    }

    /// Fills in the sequences from `first` on of the global batch of step `step`, before which the run has consumed
    /// `samples_before` sequences. Files are read by the number of the sample, what is built in is drawn by step.
    ///
    /// # Errors
    /// Those of reading; samples of another kind than the source's.
    pub fn fill(&self, step: u64, samples_before: u64, first: usize, samples: Samples) -> Result<(), EngineError> {
        let first = first as u64;
        if let Kind::Waves { training, .. } = &self.kind {
            let (inputs, targets) = samples.patches()?;
            training.fill(step, first, inputs, targets);
            return Ok(());
        }
        let (tokens, targets) = samples.tokens()?;
        match &self.kind {
            Kind::Files { training, .. } => training
                .fill(samples_before + first, self.seq_len, tokens, targets)
                .map_err(EngineError::of_callback)?,
            Kind::Demo { training, .. } => self.draw(training, self.seed, step, first, tokens, targets)?,
            Kind::Waves { .. } => {}
        }
        if let Some(goldfish) = &self.goldfish {
            goldfish.apply(self.seq_len, tokens, targets);
        }
        Ok(())
    }

    /// Fills in samples from number `first` on of those that a run with steps of `global_batch` sequences reads.
    ///
    /// # Errors
    /// Those of [`Self::fill`].
    pub fn fill_from(&self, first: u64, global_batch: u64, samples: Samples) -> Result<(), EngineError> {
        let elements = match &self.kind {
            Kind::Waves { training, .. } => training.points(),
            Kind::Files { .. } | Kind::Demo { .. } => self.seq_len,
        };
        for (number, sample) in (first..).zip(samples.sequences(elements)) {
            let before = number / global_batch;
            let within = number % global_batch;
            self.fill(before + 1, before * global_batch, within as usize, sample)?;
        }
        Ok(())
    }

    /// How many validation samples there are: `None` without any, no number where they never end.
    pub fn validation_samples(&self) -> Option<Option<u64>> {
        match &self.kind {
            Kind::Files { validation, .. } => validation.as_ref().map(|validation| Some(validation.samples())),
            Kind::Demo { validation, .. } => validation.as_ref().map(|_| None),
            Kind::Waves { validation, .. } => validation.as_ref().map(|_| None),
        }
    }

    /// How many samples for training there are before any is read again; no number where they never end, or are mixed of
    /// several sources.
    pub fn training_samples(&self) -> Option<u64> {
        match &self.kind {
            Kind::Files { training, .. } => (training.sources().count() == 1).then(|| training.samples()),
            Kind::Demo { .. } | Kind::Waves { .. } => None,
        }
    }

    /// Fills in the validation samples from number `first` on: the same in every evaluation, and none that training reads.
    ///
    /// # Errors
    /// Those of reading; without validation samples nothing is filled in.
    pub fn fill_validation(&self, first: u64, samples: Samples) -> Result<(), EngineError> {
        match &self.kind {
            Kind::Files { validation: Some(validation), .. } => {
                let (tokens, targets) = samples.tokens()?;
                validation.fill(first, self.seq_len, tokens, targets).map_err(EngineError::of_callback)
            }
            Kind::Demo { validation: Some(validation), .. } => {
                let (tokens, targets) = samples.tokens()?;
                self.draw(validation, self.seed ^ VALIDATION_SEED, 0, first, tokens, targets)
            }
            Kind::Waves { validation: Some(validation), .. } => {
                let (inputs, targets) = samples.patches()?;
                validation.fill(0, first, inputs, targets);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Samples drawn uniformly from the built-in corpus.
    fn draw(
        &self,
        source: &TokenSource,
        seed: u64,
        step: u64,
        first: u64,
        tokens: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), EngineError> {
        let count = tokens.len() / self.seq_len;
        fill_batch(source, seed, step, first, count, self.seq_len, tokens, targets).map_err(EngineError::of_callback)
    }
}

impl Kind {
    /// Whose tokens the samples are, where they are of text and it is known; all that are known are the same.
    fn vocabulary(&self) -> Option<Vocabulary> {
        match self {
            Self::Files { training, validation, .. } => {
                let mut sources =
                    [Some(training), validation.as_ref()].into_iter().flatten().flat_map(Mixture::sources);
                sources.find_map(|(windows, _)| windows.source().vocabulary())
            }
            Self::Demo { training, .. } => training.vocabulary(),
            Self::Waves { .. } => None,
        }
    }

    /// Identity of the data, for checkpoints.
    ///
    /// # Errors
    /// None that is known: all of it is plain data.
    fn about(&self, spec: &DataSpec, tokenizer: Option<&UsedTokenizer>) -> Result<Value, RunError> {
        let mixture = |mixture: &Mixture, identities: &[SourceIdentity]| -> Vec<SourceAbout> {
            let sources = mixture.sources().zip(identities);
            sources.map(|((windows, share), identity)| SourceAbout::new(windows, share, identity)).collect()
        };
        let share = || ValidationAbout::Share(spec.held_out_share());
        let (kind, sources, validation) = match self {
            Self::Files { training, validation, files } => (
                "files",
                mixture(training, &files.training),
                match validation {
                    Some(validation) => ValidationAbout::Files(mixture(validation, &files.validation)),
                    None => ValidationAbout::Share(None),
                },
            ),
            Self::Demo { .. } => ("demo", Vec::new(), share()),
            Self::Waves { .. } => ("waves", Vec::new(), share()),
        };
        let about = DataAbout {
            kind,
            vocabulary: self.vocabulary().map(|vocabulary| vocabulary.name.to_string()),
            sources,
            special_tokens: tokenizer.and_then(|it| it.special.as_ref()).filter(|special| !special.is_empty()),
            documents: spec.documents.to_string(),
            validation,
            goldfish: spec.goldfish.map(|goldfish| goldfish.to_string()),
        };
        serde_json::to_value(about).map_err(RunError::Document)
    }
}

/// Identity of the data of a run.
#[derive(Serialize)]
struct DataAbout<'a> {
    kind: &'static str,
    vocabulary: Option<String>,
    sources: Vec<SourceAbout>,
    special_tokens: Option<&'a SpecialTokensRead>,
    documents: String,
    validation: ValidationAbout,
    goldfish: Option<String>,
}

/// Data of validations: files, or a part of the training data.
#[derive(Serialize)]
#[serde(untagged)]
enum ValidationAbout {
    Files(Vec<SourceAbout>),
    Share(Option<f64>),
}

/// Identity of a source, and the part of it that is read.
#[derive(Serialize)]
struct SourceAbout {
    path: String,
    share: f64,
    tokens: usize,
    first: usize,
    end: usize,
    samples: u64,
    vocabulary: Option<String>,
    skipped_lines: Vec<SkippedFile>,
    content: String,
    files: Vec<FileIdentity>,
}

impl SourceAbout {
    fn new(windows: &Windows, share: f64, identity: &SourceIdentity) -> Self {
        let source = windows.source();
        let range = windows.range();
        Self {
            path: source.path().to_string_lossy().into_owned(),
            share,
            tokens: source.len(),
            first: range.start,
            end: range.end,
            samples: windows.len(),
            vocabulary: source.vocabulary().map(|vocabulary| vocabulary.name.to_string()),
            skipped_lines: identity.skipped_lines(),
            content: identity.content(),
            files: identity.files(),
        }
    }
}
