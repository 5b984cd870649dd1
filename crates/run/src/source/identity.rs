//! Identity of the data of a run: the contents of its files, for documents and for comparison with an earlier part of the run.

use quadrille_data::DataFile;
use serde_json::{Value, json};

use super::overview::skipped_lines;

/// Number of files of a source that a document lists: each checkpoint holds one.
const LISTED: usize = 256;

/// Files of all sources, in the order of the mixtures.
#[derive(Debug, Default)]
pub(super) struct FilesRead {
    pub training: Vec<SourceIdentity>,
    pub validation: Vec<SourceIdentity>,
    /// True if files of their own are read for validation.
    pub is_held_out: bool,
}

impl FilesRead {
    /// Every file.
    pub fn all(&self) -> impl Iterator<Item = &DataFile> {
        self.training.iter().chain(&self.validation).flat_map(|source| &source.files)
    }
}

/// Files of one source.
#[derive(Debug, Clone)]
pub(super) struct SourceIdentity {
    pub files: Vec<DataFile>,
    /// Hash of the tokens.
    pub content: u128,
}

impl SourceIdentity {
    /// The hash of the tokens, for documents.
    pub fn content(&self) -> String {
        digits(self.content)
    }

    /// The lines of each file that were skipped, for documents.
    pub fn skipped_lines(&self) -> Value {
        skipped_lines(self.files.iter().filter_map(|file| Some((file.path.as_path(), file.skipped.as_ref()?))))
    }

    /// The files with the hashes of their contents, for documents: of many files the first ones.
    pub fn files(&self) -> Value {
        let entry = |DataFile { path, bytes, content, .. }: &DataFile| json!({ "path": path.to_string_lossy(), "bytes": bytes, "content": digits(*content) });
        self.files.iter().take(LISTED).map(entry).collect()
    }
}

fn digits(hash: u128) -> String {
    format!("{hash:032x}")
}
