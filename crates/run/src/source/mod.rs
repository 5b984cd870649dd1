//! What `train` reads: files of text or tokens, the built-in corpus, or the built-in waves.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quadrille_checkpoint::Checkpoint;
use quadrille_data::{
    DataError, DemoCorpus, Documents, Goldfish, Mixture, Opening, Reading, SampleShape, TokenSource, Tokenizer,
    Vocabulary, Waves, Windows, fill_batch, open, split,
};
use quadrille_engine::{EngineError, Samples};
use quadrille_spec::Model;
use serde_json::{Value, json};

use crate::data_arguments::{DataArguments, DataPath};
use crate::failure::Failure;
use crate::paths;
use crate::tokenizer_rule::TokenizerRule;

/// Tokens of the built-in corpus.
pub const DEMO_TOKENS: usize = 1 << 20;
/// Turns the run's seed into that of what validation reads, where both are built in.
const VALIDATION_SEED: u64 = 0x7661_6c69_6461_7465;

/// Samples for training as a function of (seed, step, number), and for validation as one of (seed, number).
pub struct Source {
    kind: Kind,
    seed: u64,
    seq_len: usize,
    goldfish: Option<Goldfish>,
    /// What the samples are, for documents.
    about: Value,
}

enum Kind {
    Files { training: Mixture, validation: Option<Mixture> },
    Demo { training: Box<TokenSource>, validation: Option<Box<TokenSource>> },
    Waves { training: Waves, validation: Option<Waves> },
}

impl Source {
    /// Files, of which text is tokenised once, or, without any, what is built in for the kind of model. Where `checkpoint`
    /// says whose tokens its run has read, only those will do.
    pub fn open(
        arguments: &DataArguments,
        checkpoint: Option<&Checkpoint>,
        model: &Model,
        seed: u64,
        seq_len: usize,
    ) -> Result<Self, Failure> {
        if let Some(goldfish) = arguments.goldfish.filter(|goldfish| goldfish.context() > seq_len) {
            let (h, k) = (goldfish.context(), goldfish);
            return Err(Failure::usage(format!(
                "--goldfish {k}: samples of {seq_len} tokens have none with {h} before it; use an h of {seq_len} at most, \
                 or longer sequences"
            )));
        }
        let rule = TokenizerRule { choice: arguments.tokenizer.as_ref(), checkpoint, model };
        let kind = match model.patch_values {
            Some(values) => waves(arguments, model, seed, seq_len, values)?,
            None if arguments.data.is_empty() => demo(arguments, rule, seed, seq_len)?,
            None => files(arguments, rule, seed, seq_len)?,
        };
        let about = kind.about(arguments);
        let source = Self { kind, seed, seq_len, goldfish: arguments.goldfish, about };
        source.check_first(model)?;
        Ok(source)
    }

    /// Reads one sample of each kind: what cannot be read at all is found before ranks start or files are written.
    fn check_first(&self, model: &Model) -> Result<(), Failure> {
        if model.patch_values.is_some() {
            return Ok(());
        }
        let (mut tokens, mut targets) = (vec![0; self.seq_len], vec![0; self.seq_len]);
        let unreadable = |error: EngineError| match error {
            EngineError::Data(error) => Failure::from(error),
            other => Failure::from(other),
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
    pub fn fill(&self, step: u64, samples_before: u64, first: usize, samples: Samples) -> Result<(), EngineError> {
        let first = first as u64;
        if let Kind::Waves { training, .. } = &self.kind {
            let (inputs, targets) = samples.patches()?;
            training.fill(step, first, inputs, targets);
            return Ok(());
        }
        let (tokens, targets) = samples.tokens()?;
        match &self.kind {
            Kind::Files { training, .. } => training.fill(samples_before + first, self.seq_len, tokens, targets)?,
            Kind::Demo { training, .. } => self.draw(training, self.seed, step, first, tokens, targets)?,
            Kind::Waves { .. } => {}
        }
        if let Some(goldfish) = &self.goldfish {
            goldfish.apply(self.seq_len, tokens, targets);
        }
        Ok(())
    }

    /// Fills in samples from number `first` on of those that a run with steps of `global_batch` sequences reads.
    pub fn fill_from(&self, first: u64, global_batch: u64, samples: Samples) -> Result<(), EngineError> {
        let elements = match &self.kind {
            Kind::Waves { training, .. } => training.points(),
            Kind::Files { .. } | Kind::Demo { .. } => self.seq_len,
        };
        for (number, sample) in (first..).zip(samples.sequences(elements)) {
            let (before, within) = (number / global_batch, number % global_batch);
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
                Ok(validation.fill(first, self.seq_len, tokens, targets)?)
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
        Ok(fill_batch(source, seed, step, first, count, self.seq_len, tokens, targets)?)
    }
}

impl Kind {
    /// Whose tokens the samples are, where they are of text and it is known; all that are known are the same.
    fn vocabulary(&self) -> Option<Vocabulary> {
        match self {
            Self::Files { training, validation } => {
                let mut sources =
                    [Some(training), validation.as_ref()].into_iter().flatten().flat_map(Mixture::sources);
                sources.find_map(|(windows, _)| windows.source().vocabulary())
            }
            Self::Demo { training, .. } => training.vocabulary(),
            Self::Waves { .. } => None,
        }
    }

    fn about(&self, arguments: &DataArguments) -> Value {
        let mixture = |mixture: &Mixture| -> Vec<Value> {
            mixture.sources().map(|(windows, share)| source_about(windows, share)).collect()
        };
        let share = || json!(arguments.validation);
        let (kind, training, validation) = match self {
            Self::Files { training, validation } => (
                "files",
                mixture(training),
                validation.as_ref().map_or(Value::Null, |validation| mixture(validation).into()),
            ),
            Self::Demo { .. } => ("demo", Vec::new(), share()),
            Self::Waves { .. } => ("waves", Vec::new(), share()),
        };
        json!({
            "kind": kind,
            "vocabulary": self.vocabulary().map(|vocabulary| vocabulary.name.to_string()),
            "sources": training,
            "documents": arguments.documents.unwrap_or_default().to_string(),
            "validation": validation,
            "goldfish": arguments.goldfish.map(|goldfish| goldfish.to_string()),
        })
    }
}

fn source_about(windows: &Windows, share: f64) -> Value {
    let (source, range) = (windows.source(), windows.range());
    json!({
        "path": source.path(),
        "share": share,
        "tokens": source.len(),
        "first": range.start,
        "end": range.end,
        "samples": windows.len(),
        "vocabulary": source.vocabulary().map(|vocabulary| vocabulary.name.to_string()),
    })
}

/// Moving waves, for models that read no text.
fn waves(arguments: &DataArguments, model: &Model, seed: u64, seq_len: usize, values: usize) -> Result<Kind, Failure> {
    if let Some(option) = arguments.of_text() {
        return Err(Failure::usage(format!(
            "{option}: {} reads patches of numbers, not text; leave it out to train on the built-in waves, or use a model \
             with a vocabulary",
            model.name
        )));
    }
    check_share(arguments)?;
    let waves = |seed| Waves::new(seed, seq_len, values);
    Ok(Kind::Waves { training: waves(seed), validation: arguments.validation.map(|_| waves(seed ^ VALIDATION_SEED)) })
}

/// The built-in corpus; for validation another text of the same language.
fn demo(arguments: &DataArguments, rule: TokenizerRule, seed: u64, seq_len: usize) -> Result<Kind, Failure> {
    let tokenizer = rule.tokenizer()?;
    rule.check(&tokenizer.to_string(), &tokenizer.vocabulary())?;
    if matches!(tokenizer, Tokenizer::Json(_)) {
        return Err(Failure::usage(format!(
            "tokenizer {tokenizer}: the built-in corpus is spelled by gpt2 or bytes, for which its entropy is known; use \
             one of these, or give text with --data"
        )));
    }
    if arguments.documents == Some(Documents::Respected) {
        return Err(Failure::usage(
            "--documents respected: the built-in corpus has no documents; give text with --data",
        ));
    }
    check_share(arguments)?;
    let corpus = |seed, tokens: usize| {
        let demo = DemoCorpus::new(seed, tokenizer.clone(), tokens.max(4 * seq_len));
        Box::new(TokenSource::from(demo))
    };
    let validation = |share: f64| corpus(seed ^ VALIDATION_SEED, (share * DEMO_TOKENS as f64) as usize);
    Ok(Kind::Demo { training: corpus(seed, DEMO_TOKENS), validation: arguments.validation.map(validation) })
}

/// Files of text and tokens.
fn files(arguments: &DataArguments, rule: TokenizerRule, seed: u64, seq_len: usize) -> Result<Kind, Failure> {
    check_apart(arguments)?;
    let mut reading = Reading::new(rule.tokenizer()?);
    if let Some(field) = &arguments.text_field {
        reading.text_field.clone_from(field);
    }
    let opening = Opening { reading: &reading, named: arguments.tokenizer.is_some(), cache: &arguments.cache };
    let documents = arguments.documents.unwrap_or_default();
    let shape = SampleShape { seq_len, documents, vocab: rule.model.vocab };
    let (mut training, mut validation) = (Vec::new(), Vec::new());
    let read = sources("--data", &arguments.data, &opening, rule)?;
    let looked_at = sources("--validation-data", &arguments.validation_data, &opening, rule)?;
    check_one_vocabulary(read.iter().chain(&looked_at).map(|(source, _)| source.as_ref()))?;
    for (source, weight) in read {
        let (first, last) = match arguments.validation {
            Some(share) => split(&source, share, shape)?,
            None => (0..source.len(), 0..0),
        };
        if arguments.validation.is_some() {
            validation.push((Windows::new(source.clone(), last, shape)?, weight));
        }
        training.push((Windows::new(source, first, shape)?, weight));
    }
    for (source, weight) in looked_at {
        let all = 0..source.len();
        validation.push((Windows::new(source, all, shape)?, weight));
    }
    let validation = (!validation.is_empty()).then(|| Mixture::new(validation, seed ^ VALIDATION_SEED)).transpose()?;
    Ok(Kind::Files { training: Mixture::new(training, seed)?, validation })
}

/// What a flag names: without weights one source, else as many as there are weights.
fn sources(
    flag: &str,
    paths: &[DataPath],
    opening: &Opening,
    rule: TokenizerRule,
) -> Result<Vec<(Arc<TokenSource>, f64)>, Failure> {
    let all: Vec<PathBuf> = paths.iter().map(|data| data.path.clone()).collect();
    let weights: Vec<f64> = paths.iter().filter_map(|data| data.weight).collect();
    let groups: Vec<(Vec<PathBuf>, f64)> = match weights.len() {
        _ if paths.is_empty() => Vec::new(),
        0 => vec![(all, 1.0)],
        weighted if weighted == paths.len() => all.into_iter().map(|path| vec![path]).zip(weights).collect(),
        _ => {
            return Err(Failure::usage(format!(
                "{flag}: some paths have a weight and some have none; give every path a weight, or none"
            )));
        }
    };
    let open = |(paths, weight): (Vec<PathBuf>, f64)| Ok((Arc::new(open_files(&paths, opening, rule)?), weight));
    groups.into_iter().map(open).collect()
}

/// Files and folders as one source, which the model must have the tokens for; text is tokenised once, under a bar.
pub fn open_files(paths: &[PathBuf], opening: &Opening, rule: TokenizerRule) -> Result<TokenSource, Failure> {
    let bar = PreparationBar::new();
    let source = open(paths, opening, &mut |done, total| bar.show(done, total));
    bar.finish();
    let source = source?;
    if let Some(vocabulary) = source.vocabulary() {
        rule.check(&vocabulary.name.to_string(), &vocabulary)?;
    }
    Ok(source)
}

/// Refuses to validate on what training reads.
fn check_apart(arguments: &DataArguments) -> Result<(), Failure> {
    for held_out in &arguments.validation_data {
        if let Some(read) = arguments.data.iter().find(|read| paths::overlap(&read.path, &held_out.path)) {
            return Err(Failure::usage(format!(
                "--validation-data {}: training reads it with --data {}; name other files, or keep a share of them apart \
                 with --validation",
                held_out.path.display(),
                read.path.display()
            )));
        }
    }
    Ok(())
}

/// Refuses sources of different tokenizers: the same number would stand for different text.
fn check_one_vocabulary<'a>(sources: impl Iterator<Item = &'a TokenSource>) -> Result<(), Failure> {
    let mut known = sources.filter_map(|source| Some((source.path(), source.vocabulary()?.name)));
    let Some((first, expected)) = known.next() else { return Ok(()) };
    match known.find(|(_, found)| *found != expected) {
        None => Ok(()),
        Some((path, found)) => Err(DataError::OtherTokenizer {
            path: path.to_owned(),
            found: found.to_string(),
            expected: expected.to_string(),
            because: first.display().to_string(),
        }
        .into()),
    }
}

/// A share of what never ends is only looked at.
fn check_share(arguments: &DataArguments) -> Result<(), Failure> {
    match arguments.validation {
        Some(share) if !(share > 0.0 && share < 1.0) => {
            Err(Failure::usage(format!("--validation {share}: it must lie between 0 and 1, e.g. --validation 0.01")))
        }
        _ => Ok(()),
    }
}

/// Bytes that were read, for who watches.
pub struct PreparationBar(ProgressBar);

impl PreparationBar {
    /// Shown from the first byte on, if standard error is a terminal.
    pub fn new() -> Self {
        let target = if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style =
            ProgressStyle::with_template("preparing {bar:30} {bytes}/{total_bytes} {bytes_per_sec} (eta {eta})");
        let bar = ProgressBar::with_draw_target(None, target);
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// `done` of `total` bytes.
    pub fn show(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
