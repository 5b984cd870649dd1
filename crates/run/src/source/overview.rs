//! An overview of what a run reads, for people.

use quadrille_data::{DataFile, Format, Mixture, SkippedLines, TokenSource, Windows};

use super::identity::SourceIdentity;
use super::{Kind, Source};
use crate::tokenizer_rule::TokenizerOrigin;

/// One source of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceOverview {
    /// True if it is read for validation alone.
    pub is_held_out: bool,
    /// Names of its files, in their order.
    pub names: Vec<String>,
    /// Formats with the number of files of each.
    pub formats: Vec<(Format, usize)>,
    /// Size of all files.
    pub bytes: u64,
    /// Documents; `None` where counting them would read everything.
    pub documents: Option<usize>,
    /// Tokens.
    pub tokens: usize,
    /// Files with lines that were skipped.
    pub skipped: Vec<(String, SkippedLines)>,
    /// Share of the samples that are from this source.
    pub share: f64,
    /// Samples before any is read again.
    pub samples: u64,
}

impl Source {
    /// The sources of files; empty for what is built in.
    pub fn overviews(&self) -> Vec<SourceOverview> {
        let Kind::Files { training, validation, files } = &self.kind else { return Vec::new() };
        let held_out = validation.as_ref().filter(|_| files.is_held_out);
        let mut all = overviews(training, &files.training, false);
        all.extend(held_out.into_iter().flat_map(|mixture| overviews(mixture, &files.validation, true)));
        all
    }

    /// How often a number of samples reads each source of training.
    pub fn epochs(&self, samples: u64) -> Vec<f64> {
        let of_training = self.overviews().into_iter().filter(|source| !source.is_held_out);
        of_training.map(|source| samples as f64 * source.share / source.samples.max(1) as f64).collect()
    }

    /// The tokenizer, and why it is that one; `None` for models that read no text.
    pub fn tokenizer(&self) -> Option<String> {
        let Some((name, origin)) = &self.tokenizer else {
            let Kind::Files { .. } = self.kind else { return None };
            let known =
                self.kind.vocabulary().map(|vocabulary| format!("{}, as the files of tokens say", vocabulary.name));
            return Some(
                known.unwrap_or_else(|| "of an unknown tokenizer: the files of tokens do not say it".to_owned()),
            );
        };
        Some(match origin {
            TokenizerOrigin::Named => format!("{name}, as named"),
            TokenizerOrigin::Beside(_) => format!("{name}, beside the checkpoint"),
            TokenizerOrigin::Recorded => format!("{name}, as the run of the checkpoint"),
            TokenizerOrigin::Usual => format!("{name}, by default for the model's vocabulary"),
        })
    }
}

fn overviews(mixture: &Mixture, identities: &[SourceIdentity], is_held_out: bool) -> Vec<SourceOverview> {
    let sources = mixture.sources().zip(identities);
    sources.map(|((windows, share), identity)| overview(windows, share, identity, is_held_out)).collect()
}

fn overview(windows: &Windows, share: f64, identity: &SourceIdentity, is_held_out: bool) -> SourceOverview {
    let source = windows.source();
    let mut formats: Vec<(Format, usize)> = Vec::new();
    for file in &identity.files {
        match formats.iter_mut().find(|(format, _)| *format == file.format) {
            Some((_, count)) => *count += 1,
            None => formats.push((file.format, 1)),
        }
    }
    let name = |file: &DataFile| file.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let skipped = |file: &DataFile| Some((name(file)?, file.skipped.clone()?));
    SourceOverview {
        is_held_out,
        names: identity.files.iter().filter_map(name).collect(),
        formats,
        bytes: identity.files.iter().map(|file| file.bytes).sum(),
        documents: documents(source, identity),
        tokens: source.len(),
        skipped: identity.files.iter().filter_map(skipped).collect(),
        share,
        samples: windows.len(),
    }
}

/// Documents of a source; those of llm.c's files are found by reading all tokens.
fn documents(source: &TokenSource, identity: &SourceIdentity) -> Option<usize> {
    let is_counted = identity.files.iter().all(|file| file.format != Format::LlmC);
    if is_counted { source.documents().ok() } else { None }
}
