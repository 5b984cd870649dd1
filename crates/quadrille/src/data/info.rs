//! `quadrille data info`: what files hold.

use std::path::PathBuf;

use clap::Args;
use quadrille_data::{Contents, inspect};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{bytes, print_json, print_text, table};

#[derive(Debug, Args)]
#[command(after_help = "Example:
  quadrille data info wiki.tokens corpus.idx --json")]
pub struct InfoArguments {
    /// Files of tokens or of text, or folders; all of them are read and checked
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The field of JSON lines that holds the text
    #[arg(long, value_name = "FIELD", default_value = "text")]
    pub text_field: String,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Prints a line, or an object, for every file.
pub fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let found = inspect(&arguments.files, &arguments.text_field)?;
    if arguments.json {
        return print_json(&json!({ "files": found.iter().map(document).collect::<Vec<_>>() }));
    }
    let header =
        ["file", "format", "size", "tokens", "documents", "vocabulary", "tokenizer", "largest token", "checksum"];
    print_text(&table(&header, &found.iter().map(row).collect::<Vec<_>>()))
}

fn document(contents: &Contents) -> Value {
    json!({
        "path": contents.path,
        "format": contents.format.to_string(),
        "bytes": contents.bytes,
        "tokens": contents.tokens,
        "documents": contents.documents,
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
        known(contents.vocabulary.map(|vocabulary| vocabulary.size.to_string())),
        known(contents.vocabulary.map(|vocabulary| vocabulary.name.to_string())),
        known(contents.largest.map(|token| token.to_string())),
        checksum(contents),
    ]
}

fn checksum(contents: &Contents) -> String {
    format!("xxh3-{:016x}", contents.checksum)
}
