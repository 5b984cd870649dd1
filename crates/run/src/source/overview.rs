//! An overview of what is read, for people.

use std::path::Path;

use quadrille_data::{FileSurvey, Format, Mixture, SkippedLines, TokenSource, Windows};

use super::identity::SourceIdentity;
use super::{Kind, Source};
use crate::TokenizerOrigin;

/// A source of a run, or of a preparation of tokens.
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
    /// Tokens; `None` before text is tokenized.
    pub tokens: Option<usize>,
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
        let Some(tokenizer) = &self.tokenizer else {
            let Kind::Files { .. } = self.kind else { return None };
            return Some(TokenizerOrigin::of_tokens(self.kind.vocabulary()));
        };
        Some(tokenizer.description())
    }
}

impl SourceOverview {
    /// The overview of files before their text is tokenized.
    pub fn of_files(files: &[FileSurvey]) -> Self {
        let sum = |count: fn(&FileSurvey) -> Option<u64>| -> Option<usize> {
            files.iter().map(count).sum::<Option<u64>>().map(|sum| sum as usize)
        };
        let listed = files.iter().map(|file| ListedFile {
            path: &file.path,
            format: file.format,
            bytes: file.bytes,
            skipped: file.skipped.as_ref(),
        });
        let (documents, tokens) = (sum(|file| file.documents), sum(|file| file.tokens));
        Self { documents, tokens, ..Self::of(listed) }
    }

    /// Names, formats, sizes and skipped lines of files.
    fn of<'f>(files: impl Iterator<Item = ListedFile<'f>>) -> Self {
        let (names, formats, skipped) = (Vec::new(), Vec::new(), Vec::new());
        let (bytes, documents, tokens) = (0, None, None);
        let (is_held_out, share, samples) = (false, 1.0, 0);
        let mut all = Self { is_held_out, names, formats, bytes, documents, tokens, skipped, share, samples };
        for file in files {
            let name = file.path.file_name().unwrap_or(file.path.as_os_str()).to_string_lossy().into_owned();
            all.skipped.extend(file.skipped.map(|lines| (name.clone(), lines.clone())));
            all.names.push(name);
            all.bytes += file.bytes;
            match all.formats.iter_mut().find(|(format, _)| *format == file.format) {
                Some((_, count)) => *count += 1,
                None => all.formats.push((file.format, 1)),
            }
        }
        all
    }
}

/// A file of an overview.
struct ListedFile<'f> {
    path: &'f Path,
    format: Format,
    bytes: u64,
    skipped: Option<&'f SkippedLines>,
}

fn overviews(mixture: &Mixture, identities: &[SourceIdentity], is_held_out: bool) -> Vec<SourceOverview> {
    let sources = mixture.sources().zip(identities);
    sources.map(|((windows, share), identity)| overview(windows, share, identity, is_held_out)).collect()
}

fn overview(windows: &Windows, share: f64, identity: &SourceIdentity, is_held_out: bool) -> SourceOverview {
    let source = windows.source();
    let listed = identity.files.iter().map(|file| ListedFile {
        path: &file.path,
        format: file.format,
        bytes: file.bytes,
        skipped: file.skipped.as_ref(),
    });
    let (documents, tokens) = (documents(source, identity), Some(source.len()));
    SourceOverview { is_held_out, documents, tokens, share, samples: windows.len(), ..SourceOverview::of(listed) }
}

/// Documents of a source; those of llm.c's files are found by reading all tokens.
fn documents(source: &TokenSource, identity: &SourceIdentity) -> Option<usize> {
    let is_counted = identity.files.iter().all(|file| file.format.lists_documents());
    if is_counted { source.documents().ok() } else { None }
}
