//! Identity of the data of a run: the contents of its files, for documents and for comparison with an earlier part of the run.

use quadrille_data::DataFile;
use serde::Serialize;

use super::overview::SkippedFile;

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
    pub fn skipped_lines(&self) -> Vec<SkippedFile> {
        self.files.iter().filter_map(|file| Some(SkippedFile::new(&file.path, file.skipped.as_ref()?))).collect()
    }

    /// The files with the hashes of their contents, for documents: of many files the first ones.
    pub fn files(&self) -> Vec<FileIdentity> {
        let identity = |DataFile { path, bytes, content, .. }: &DataFile| FileIdentity {
            path: path.to_string_lossy().into_owned(),
            bytes: *bytes,
            content: digits(*content),
        };
        self.files.iter().take(LISTED).map(identity).collect()
    }
}

/// A file by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FileIdentity {
    /// Path of the file.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
    /// Hash of its content, in hexadecimal digits.
    pub content: String,
}

fn digits(hash: u128) -> String {
    format!("{hash:032x}")
}
