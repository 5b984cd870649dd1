//! What files of tokens or of text hold.

use quadrille_data::Contents;
use quadrille_run::skipped_lines;
use quadrille_run::units::bytes;
use serde_json::{Value, json};

use crate::{Table, table};

/// All of it, as `data info --json` prints it.
pub fn document(files: &[Contents]) -> Value {
    json!({ "files": files.iter().map(entry).collect::<Vec<_>>() })
}

/// A table for people, a row for each file.
pub fn text(files: &[Contents]) -> Table {
    let header = [
        "file",
        "format",
        "size",
        "tokens",
        "documents",
        "skipped lines",
        "vocabulary",
        "tokenizer",
        "largest token",
        "checksum",
    ];
    table(&header, &files.iter().map(row).collect::<Vec<_>>())
}

fn entry(contents: &Contents) -> Value {
    json!({
        "path": contents.path.to_string_lossy(),
        "format": contents.format.to_string(),
        "bytes": contents.bytes,
        "tokens": contents.tokens,
        "documents": contents.documents,
        "skipped_lines": skipped_lines(contents.skipped.iter().map(|lines| (contents.path.as_path(), lines))),
        "vocabulary": contents.vocabulary.map(|vocabulary| vocabulary.size),
        "tokenizer": contents.vocabulary.map(|vocabulary| vocabulary.name.to_string()),
        "end_token": contents.vocabulary.and_then(|vocabulary| vocabulary.end),
        "largest_token": contents.largest,
        "checksum": checksum(contents),
    })
}

fn row(contents: &Contents) -> Vec<String> {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    vec![
        contents.path.display().to_string(),
        contents.format.to_string(),
        bytes(contents.bytes),
        known(contents.tokens.map(|tokens| tokens.to_string())),
        contents.documents.to_string(),
        known(contents.skipped.as_ref().map(|skipped| skipped.count.to_string())),
        known(contents.vocabulary.map(|vocabulary| vocabulary.size.to_string())),
        known(contents.vocabulary.map(|vocabulary| vocabulary.name.to_string())),
        known(contents.largest.map(|token| token.to_string())),
        checksum(contents),
    ]
}

fn checksum(contents: &Contents) -> String {
    format!("xxh3-{:016x}", contents.checksum)
}
