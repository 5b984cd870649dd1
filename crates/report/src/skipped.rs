//! Lines of files that were skipped because they hold no text.

use std::path::Path;

use quadrille_data::SkippedLines;
use quadrille_spec::counted;
use serde_json::{Value, json};

/// One line of text for a file.
pub(crate) fn text(file: &str, skipped: &SkippedLines) -> String {
    let SkippedLines { count, first, reason } = skipped;
    format!(
        "skipped {file}: {} without a text, the first is line {first}: {reason}\n",
        counted(*count as usize, "line")
    )
}

/// An entry of a document for each file.
pub(crate) fn document<'a>(files: impl IntoIterator<Item = (&'a Path, &'a SkippedLines)>) -> Value {
    let entry = |(path, skipped): (&Path, &SkippedLines)| json!({ "path": path, "count": skipped.count, "first": skipped.first, "reason": skipped.reason });
    files.into_iter().map(entry).collect()
}
