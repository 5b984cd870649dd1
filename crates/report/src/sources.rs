//! The files that a run, an evaluation or a preparation reads.

use std::path::Path;

use quadrille_data::SkippedLines;
use quadrille_run::units::{bytes, percent};
use quadrille_run::{SourceOverview, skipped_lines};
use quadrille_spec::counted;
use serde_json::{Map, Value, json};

/// Number of files of a source that are named.
const NAMED: usize = 4;

/// The files, documents and tokens that are read, lines that are skipped, and the tokenizer with the reason for it.
pub fn text(sources: &[SourceOverview], tokenizer: Option<&str>) -> String {
    let mut text = String::new();
    for source in sources {
        let name = if source.is_held_out { "eval" } else { "data" };
        text += &format!("{name:<8}{}\n", one_source(source));
        text.extend(source.skipped.iter().map(|(file, lines)| skipped(file, lines)));
    }
    let tokenizer = tokenizer.map(|tokenizer| format!("tokenizer {tokenizer}\n"));
    text + &tokenizer.unwrap_or_default()
}

/// JSON document of [`text`].
pub fn document(sources: &[SourceOverview], tokenizer: Option<&str>) -> Value {
    let entry = |source: &SourceOverview| {
        let formats = source.formats.iter().map(|(format, count)| (format.to_string(), json!(count)));
        json!({
            "files": source.names,
            "formats": formats.collect::<Map<_, _>>(),
            "bytes": source.bytes,
            "documents": source.documents,
            "tokens": source.tokens,
            "skipped_lines": skipped_lines(source.skipped.iter().map(|(name, lines)| (Path::new(name), lines))),
        })
    };
    json!({ "sources": sources.iter().map(entry).collect::<Vec<_>>(), "tokenizer": tokenizer })
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
pub(crate) fn skipped(file: &str, skipped: &SkippedLines) -> String {
    let SkippedLines { unit, count, first, reason } = skipped;
    let unit = unit.name();
    let count = counted(*count as usize, unit);
    format!("skipped {file}: {count} without a text, the first is {unit} {first}: {reason}\n")
}
