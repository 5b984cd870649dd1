//! Models and texts that were converted.

use std::path::Path;
use std::slice;

use quadrille_data::{Converted, Ends, TokenFormat};
use quadrille_hugging_face::{Exported, Imported};
use quadrille_run::units::{bytes, decimal};
use quadrille_run::{SourceOverview, skipped_lines};
use quadrille_spec::Model;
use serde_json::{Value, json};

use crate::sources;

/// For people: a model of the transformers library that has become a checkpoint.
pub fn imported_text(folder: &Path, model: &Model, done: &Imported) -> String {
    let mut text = format!(
        "read     {}: {}, {} parameters in {}\nwritten  {}: {} tensors in f32\n",
        folder.display(),
        model.name,
        done.parameters,
        done.dtype,
        done.checkpoint.display(),
        done.tensors
    );
    if !done.ignored.is_empty() {
        text += &format!("left out {} (they follow from config.json)\n", done.ignored.join(", "));
    }
    text + &copied(&done.copied)
}

/// For people: a checkpoint that has become a model of the transformers library.
pub fn exported_text(checkpoint: &Path, folder: &Path, done: &Exported) -> String {
    let mut text = format!(
        "read     {}\nwritten  {}: {}, {} tensors in {}, {} in {}\n",
        checkpoint.display(),
        folder.display(),
        done.family,
        done.tensors,
        done.dtype,
        bytes(done.bytes),
        done.files.join(", ")
    );
    if done.rounded > 0 {
        text += &format!("rounded  {} numbers, which {} does not hold exactly\n", done.rounded, done.dtype);
    }
    text + &copied(&done.copied)
}

fn copied(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!("copied   {}\n", names.join(", ")) }
}

/// Text or tokens that have become a file of tokens, in so many seconds.
pub struct TokensReport<'a> {
    /// Overview of the files, before they are tokenized.
    pub read: &'a SourceOverview,
    /// The tokenizer and the reason for it.
    pub tokenizer: &'a str,
    /// What was written.
    pub converted: &'a Converted,
    /// The format of the file.
    pub format: TokenFormat,
    /// How long it took.
    pub seconds: f64,
}

impl TokensReport<'_> {
    /// All of it, as `data prepare --json` prints it.
    pub fn document(&self) -> Value {
        let Self { read, tokenizer, converted, format, seconds } = self;
        json!({
            "read": sources::document(slice::from_ref(read), Some(tokenizer)),
            "files": converted.files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "format": format.to_string(),
            "tokens": converted.tokens,
            "documents": converted.documents,
            "documents_without_end": converted.ends.missing,
            "ends_appended": converted.ends.appended,
            "tokenizer": converted.vocabulary.name.to_string(),
            "vocabulary": converted.vocabulary.size,
            "skipped_lines": skipped_lines(converted.skipped.iter().map(|(path, lines)| (path.as_path(), lines))),
            "bytes_read": converted.bytes_read,
            "seconds": seconds,
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let Self { converted, seconds, .. } = self;
        let names: Vec<String> = converted.files.iter().map(|path| path.display().to_string()).collect();
        let documents = |count: u64| if count == 1 { "1 document".to_owned() } else { format!("{count} documents") };
        let ends = match converted.ends {
            Ends { appended, .. } if appended > 0 => format!("the end token was appended to {}\n", documents(appended)),
            Ends { missing, .. } if missing > 0 => {
                format!("{} without an end token, as before; `tokens.append_end` appends it\n", documents(missing))
            }
            _ => String::new(),
        };
        let skipped =
            converted.skipped.iter().map(|(path, lines)| sources::skipped(&path.display().to_string(), lines));
        let skipped: String = skipped.collect();
        format!(
            "{}: {} tokens of {} in {} documents; {seconds:.1} s, {}, {}\n{ends}{skipped}",
            names.join(", "),
            converted.tokens,
            converted.vocabulary.name,
            converted.documents,
            decimal(converted.bytes_read as f64 / seconds, "B/s"),
            decimal(converted.tokens as f64 / seconds, "tokens/s"),
        )
    }
}
