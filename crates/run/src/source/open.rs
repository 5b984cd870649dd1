//! How what a run reads is opened.

use std::path::PathBuf;
use std::sync::Arc;

use quadrille_data::{
    DataError, DataSource, DemoCorpus, Documents, Mixture, Opening, SampleShape, TokenSource, Tokenizer, Waves,
    Windows, open, split,
};
use quadrille_spec::Model;

use super::identity::{FilesRead, SourceIdentity};
use super::tokenizer::{SpecialTokensRead, UsedTokenizer};
use super::{DEMO_TOKENS, Kind, KindOfText, OnPreparation, VALIDATION_SEED};
use crate::paths::overlap;
use crate::refusal::{Refusal, Setting};
use crate::tokenizer_rule::{TokenizerOrigin, TokenizerRule};
use crate::{DataPath, DataSpec, HeldOut, RunError};

/// Moving waves, for models that read no text.
pub(super) fn waves(spec: &DataSpec, model: &Model, seed: u64, seq_len: usize, values: usize) -> Result<Kind, Refusal> {
    if let Some(choice) = spec.of_text() {
        return Err(Refusal::of(choice).text(format!(
            ": {} reads patches of numbers, not text; leave it out to train on the built-in waves, or use a model with a \
             vocabulary",
            model.name
        )));
    }
    let share = share(spec)?;
    let waves = |seed| Waves::new(seed, seq_len, values);
    Ok(Kind::Waves { training: waves(seed), validation: share.map(|_| waves(seed ^ VALIDATION_SEED)) })
}

/// The built-in corpus; for validation another text of the same language.
pub(super) fn demo(spec: &DataSpec, rule: TokenizerRule, seed: u64, seq_len: usize) -> Result<KindOfText, RunError> {
    let (tokenizer, origin) = rule.tokenizer()?;
    rule.check(&tokenizer.to_string(), &tokenizer.vocabulary())?;
    if matches!(tokenizer, Tokenizer::Json(_)) {
        let rule = format!(
            "tokenizer {tokenizer}: the built-in corpus is spelled by gpt2 or bytes, for which its entropy is known; use \
             one of these, or give text with "
        );
        return Err(Refusal::new(rule).name(Setting::Data).into());
    }
    if spec.documents == Documents::Respected {
        let refusal = Refusal::of(Setting::Documents)
            .text(" respected: the built-in corpus has no documents; give text with ")
            .name(Setting::Data);
        return Err(refusal.into());
    }
    let share = share(spec)?;
    let corpus = |seed, tokens: usize| {
        let demo = DemoCorpus::new(seed, tokenizer.clone(), tokens.max(4 * seq_len));
        Box::new(TokenSource::from(demo))
    };
    let apart = |share: f64| corpus(seed ^ VALIDATION_SEED, (share * DEMO_TOKENS as f64) as usize);
    let kind = Kind::Demo { training: corpus(seed, DEMO_TOKENS), validation: share.map(apart) };
    Ok((kind, Some(UsedTokenizer { name: tokenizer.to_string(), origin, special: None })))
}

/// Files of text and tokens.
pub(super) fn files(
    spec: &DataSpec,
    rule: TokenizerRule,
    seed: u64,
    seq_len: usize,
    on_preparation: OnPreparation,
) -> Result<KindOfText, RunError> {
    check_apart(spec)?;
    let named: Vec<PathBuf> = spec.paths.iter().chain(spec.held_out_files()).map(|data| data.path.clone()).collect();
    let (tokenizer, origin) = rule.tokenizer_for(&named, spec.rules())?;
    let reading = spec.reading(tokenizer);
    let opening = Opening { reading: &reading, named: spec.tokenizer.is_some(), cache: &spec.cache };
    let shape = SampleShape { seq_len, documents: spec.documents, vocab: rule.model.vocab };
    let mut training = Vec::new();
    let mut validation = Vec::new();
    let read = sources(Setting::Data, &spec.paths, &opening, rule, on_preparation)?;
    let looked_at = sources(Setting::HeldOutFiles, spec.held_out_files(), &opening, rule, on_preparation)?;
    check_one_vocabulary(read.iter().chain(&looked_at).map(|(source, _)| &source.tokens))?;
    let mut files = FilesRead { is_held_out: !looked_at.is_empty(), ..FilesRead::default() };
    for (source, weight) in read {
        let (source, identity) = shared(source);
        let (first, last) = match spec.held_out_share() {
            Some(share) => split(&source, share, shape)?,
            None => (0..source.len(), 0..0),
        };
        if matches!(spec.held_out, HeldOut::Share(_)) {
            validation.push((Windows::new(source.clone(), last, shape)?, weight));
            files.validation.push(identity.clone());
        }
        files.training.push(identity);
        training.push((Windows::new(source, first, shape)?, weight));
    }
    for (source, weight) in looked_at {
        let (source, identity) = shared(source);
        files.validation.push(identity);
        let all = 0..source.len();
        validation.push((Windows::new(source, all, shape)?, weight));
    }
    let validation = (!validation.is_empty()).then(|| Mixture::new(validation, seed ^ VALIDATION_SEED)).transpose()?;
    let reads_text = files.all().any(|file| !file.format.is_tokens());
    let is_used = origin == TokenizerOrigin::Named || reads_text;
    let kind = Kind::Files { training: Mixture::new(training, seed)?, validation, files };
    let special = reads_text.then(|| SpecialTokensRead::of(&reading)).transpose()?;
    Ok((kind, is_used.then(|| UsedTokenizer { name: reading.tokenizer.to_string(), origin, special })))
}

/// The tokens of a source, for several mixtures, and its identity.
fn shared(source: DataSource) -> (Arc<TokenSource>, SourceIdentity) {
    let DataSource { tokens, files, content } = source;
    (Arc::new(tokens), SourceIdentity { files, content })
}

/// What a choice names: without weights one source, else as many as there are weights.
fn sources(
    setting: Setting,
    paths: &[DataPath],
    opening: &Opening,
    rule: TokenizerRule,
    on_preparation: OnPreparation,
) -> Result<Vec<(DataSource, f64)>, RunError> {
    let all: Vec<PathBuf> = paths.iter().map(|data| data.path.clone()).collect();
    let weights: Vec<f64> = paths.iter().filter_map(|data| data.weight).collect();
    let groups: Vec<(Vec<PathBuf>, f64)> = match weights.len() {
        _ if paths.is_empty() => Vec::new(),
        0 => vec![(all, 1.0)],
        weighted if weighted == paths.len() => all.into_iter().map(|path| vec![path]).zip(weights).collect(),
        _ => {
            let rule = ": some paths have a weight and some have none; give every path a weight, or none";
            return Err(Refusal::of(setting).text(rule).into());
        }
    };
    let open = |(paths, weight): (Vec<PathBuf>, f64)| Ok((open_files(&paths, opening, rule, on_preparation)?, weight));
    groups.into_iter().map(open).collect()
}

/// Files and folders as one source, which the model must have the tokens for; text is tokenised once.
///
/// # Errors
/// Files that cannot be read; tokens that the model does not have.
pub fn open_files(
    paths: &[PathBuf],
    opening: &Opening,
    rule: TokenizerRule,
    on_preparation: OnPreparation,
) -> Result<DataSource, RunError> {
    let source = open(paths, opening, &mut |done, total| on_preparation(done, total))?;
    if let Some(vocabulary) = source.tokens.vocabulary() {
        rule.check(&vocabulary.name.to_string(), &vocabulary)?;
    }
    source.tokens.check_raw(rule.model.vocab)?;
    Ok(source)
}

/// Refuses to validate on what training reads.
fn check_apart(spec: &DataSpec) -> Result<(), Refusal> {
    for held_out in spec.held_out_files() {
        if let Some(read) = spec.paths.iter().find(|read| overlap(&read.path, &held_out.path)) {
            let refusal = Refusal::of(Setting::HeldOutFiles)
                .text(format!(" {}: training reads it with ", held_out.path.display()))
                .name(Setting::Data)
                .text(format!(" {}; name other files, or keep a share of them apart with ", read.path.display()));
            return Err(refusal.name(Setting::HeldOutShare));
        }
    }
    Ok(())
}

/// Refuses sources of different tokenizers: the same number would stand for different text.
fn check_one_vocabulary<'a>(sources: impl Iterator<Item = &'a TokenSource>) -> Result<(), DataError> {
    let mut known = sources.filter_map(|source| Some((source.path(), source.vocabulary()?.name)));
    let Some((first, expected)) = known.next() else { return Ok(()) };
    match known.find(|(_, found)| *found != expected) {
        None => Ok(()),
        Some((path, found)) => Err(DataError::OtherTokenizer {
            path: path.to_owned(),
            found: found.to_string(),
            expected: expected.to_string(),
            because: first.display().to_string(),
        }),
    }
}

/// The share of what never ends that is looked at; how much it is only says how long a text is made.
fn share(spec: &DataSpec) -> Result<Option<f64>, Refusal> {
    match &spec.held_out {
        HeldOut::Nothing => Ok(None),
        HeldOut::Share(share) if *share > 0.0 && *share < 1.0 => Ok(Some(*share)),
        HeldOut::Share(share) => Err(Refusal::of(Setting::HeldOutShare)
            .text(format!(" {share}: it must lie between 0 and 1, e.g. "))
            .name(Setting::HeldOutShare)
            .text(" 0.01")),
        HeldOut::Files(_) => Err(Refusal::of(Setting::HeldOutFiles)
            .text(": what is built in is held against its own; name what is learned from with ")
            .name(Setting::Data)
            .text(", or use ")
            .name(Setting::HeldOutShare)),
    }
}
