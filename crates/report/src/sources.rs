//! The files that a run, an evaluation or a preparation reads.

use std::path::Path;

use quadrille_run::units::{bytes, percent};
use quadrille_run::{SkippedFile, SourceOverview};
use quadrille_spec::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ByName;

/// Number of files of a source that are named.
const NAMED: usize = 4;

/// The files, documents and tokens that are read, lines that are skipped, and the tokenizer with the reason for it.
pub fn text(sources: &[SourceOverview], tokenizer: Option<&str>) -> String {
    let mut text = String::new();
    for source in sources {
        let name = if source.is_held_out { "eval" } else { "data" };
        text += &format!("{name:<8}{}\n", one_source(source));
        text.extend(source.skipped.iter().map(|(file, lines)| skipped(&SkippedFile::new(Path::new(file), lines))));
    }
    let tokenizer = tokenizer.map(|tokenizer| format!("tokenizer {tokenizer}\n"));
    text + &tokenizer.unwrap_or_default()
}

/// Files that are read, and the tokenizer of their text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourcesReport {
    /// The sources.
    pub sources: Vec<SourceReport>,
    /// The tokenizer and the reason for it; null where no text is read.
    pub tokenizer: Option<String>,
}

/// Files of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceReport {
    /// Names of the files, in their order.
    pub files: Vec<String>,
    /// Number of files of each format.
    pub formats: ByName<usize>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of documents; null where counting them would read everything.
    pub documents: Option<usize>,
    /// Number of tokens; null before text is tokenized.
    pub tokens: Option<usize>,
    /// Lines that are skipped because they hold no text.
    pub skipped_lines: Vec<SkippedFile>,
}

impl SourcesReport {
    /// Report of sources and the tokenizer of their text.
    pub fn new(sources: &[SourceOverview], tokenizer: Option<&str>) -> Self {
        let source = |source: &SourceOverview| SourceReport {
            files: source.names.clone(),
            formats: source.formats.iter().map(|(format, count)| (format.to_string(), *count)).collect(),
            bytes: source.bytes,
            documents: source.documents,
            tokens: source.tokens,
            skipped_lines: source
                .skipped
                .iter()
                .map(|(name, lines)| SkippedFile::new(Path::new(name), lines))
                .collect(),
        };
        Self { sources: sources.iter().map(source).collect(), tokenizer: tokenizer.map(str::to_owned) }
    }
}

fn one_source(source: &SourceOverview) -> String {
    let (shown, rest) = source.names.split_at(source.names.len().min(NAMED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let formats: Vec<String> = source.formats.iter().map(|(format, count)| format!("{count} of {format}")).collect();
    let counts = [(source.documents, "document"), (source.tokens, "token")];
    let counts = counts.into_iter().filter_map(|(count, name)| Some(format!(", {}", counted(count?, name))));
    let share = if source.share < 1.0 { format!(", {} of the samples", percent(source.share)) } else { String::new() };
    format!(
        "{}{more}: {}, {} ({}){}{share}",
        shown.join(", "),
        counted(source.names.len(), "file"),
        formats.join(", "),
        bytes(source.bytes),
        counts.collect::<String>(),
    )
}

/// A line of text for a file with lines that are skipped.
pub(crate) fn skipped(skipped: &SkippedFile) -> String {
    let SkippedFile { path, unit, count, first, reason } = skipped;
    let unit = unit.name();
    let count = counted(*count as usize, unit);
    format!("skipped {path}: {count} without a text, the first is {unit} {first}: {reason}\n")
}
