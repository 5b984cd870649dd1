//! Overviews of files that are read, for people.

use std::path::Path;

use quadrille_data::{DataFile, DataSource, FileSurvey, Format, LineUnit, Mixture, SkippedLines, TokenSource, Windows};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
        let mut all =
            Self { documents: sum(|file| file.documents), tokens: sum(|file| file.tokens), ..Self::default() };
        files.iter().for_each(|file| all.add(&file.path, file.format, file.bytes, file.skipped.as_ref()));
        all
    }

    /// The overview of files that are open.
    pub fn of_source(source: &DataSource) -> Self {
        Self::of_tokens(&source.tokens, &source.files)
    }

    /// The overview of files with their tokens. Documents of files of some formats are found by reading all tokens: these are not
    /// counted.
    fn of_tokens(tokens: &TokenSource, files: &[DataFile]) -> Self {
        let lists_documents = files.iter().all(|file| file.format.lists_documents());
        let documents = if lists_documents { tokens.documents().ok() } else { None };
        let mut all = Self { documents, tokens: Some(tokens.len()), ..Self::default() };
        files.iter().for_each(|file| all.add(&file.path, file.format, file.bytes, file.skipped.as_ref()));
        all
    }

    /// Adds a file.
    fn add(&mut self, path: &Path, format: Format, bytes: u64, skipped: Option<&SkippedLines>) {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        self.skipped.extend(skipped.map(|lines| (name.clone(), lines.clone())));
        self.names.push(name);
        self.bytes += bytes;
        match self.formats.iter_mut().find(|(known, _)| *known == format) {
            Some((_, count)) => *count += 1,
            None => self.formats.push((format, 1)),
        }
    }
}

impl Default for SourceOverview {
    /// A source without files, from which all samples are.
    fn default() -> Self {
        Self {
            is_held_out: false,
            names: Vec::new(),
            formats: Vec::new(),
            bytes: 0,
            documents: None,
            tokens: None,
            skipped: Vec::new(),
            share: 1.0,
            samples: 0,
        }
    }
}

/// A file with lines or rows that are skipped because they hold no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedFile {
    /// Path of the file.
    pub path: String,
    /// Lines or rows.
    pub unit: LineUnit,
    /// Number of skipped ones.
    pub count: u64,
    /// Number of the first one in the file, from 1 on.
    pub first: u64,
    /// Reason why the first one holds no text.
    pub reason: String,
}

impl SkippedFile {
    /// Skipped lines of the file at a path.
    pub fn new(path: &Path, lines: &SkippedLines) -> Self {
        let SkippedLines { unit, count, first, reason } = lines;
        let path = path.to_string_lossy().into_owned();
        Self { path, unit: *unit, count: *count, first: *first, reason: reason.clone() }
    }
}

fn overviews(mixture: &Mixture, identities: &[SourceIdentity], is_held_out: bool) -> Vec<SourceOverview> {
    let sources = mixture.sources().zip(identities);
    let overview = |((windows, share), identity): ((&Windows, f64), &SourceIdentity)| SourceOverview {
        is_held_out,
        share,
        samples: windows.len(),
        ..SourceOverview::of_tokens(windows.source(), &identity.files)
    };
    sources.map(overview).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Documents are of text, and names of files need not be.
    #[cfg(unix)]
    #[test]
    fn files_whose_names_are_no_text_are_documents_too() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let path = Path::new(OsStr::from_bytes(b"caf\xe9.jsonl"));
        let lines = SkippedLines { unit: LineUnit::Row, count: 3, first: 2, reason: "the text is null".to_owned() };
        let expected = json!([{
            "path": "caf\u{fffd}.jsonl", "unit": "row", "count": 3, "first": 2, "reason": "the text is null",
        }]);
        assert_eq!(serde_json::to_value([SkippedFile::new(path, &lines)]).unwrap(), expected);
        let file =
            DataFile { path: path.into(), format: Format::JsonLines, bytes: 9, content: 0, skipped: Some(lines) };
        let identity = SourceIdentity { files: vec![file], content: 0 };
        assert_eq!(serde_json::to_value(identity.skipped_lines()).unwrap(), expected);
        assert_eq!(identity.files()[0].path, "caf\u{fffd}.jsonl");
    }
}
