//! The report of files of tokens or of text.

use quadrille_data::Contents;
use quadrille_run::SkippedFile;
use quadrille_run::units::bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ReportVersion, Table, table};

/// Files of tokens or of text: what `data info --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContentsReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// The files.
    pub files: Vec<FileContents>,
}

/// Contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileContents {
    /// Path of the file.
    pub path: String,
    /// Format of the file.
    pub format: String,
    /// Size of the file.
    pub bytes: u64,
    /// Number of tokens; null of text.
    pub tokens: Option<u64>,
    /// Number of documents.
    pub documents: u64,
    /// Lines that are skipped because they hold no text.
    pub skipped_lines: Vec<SkippedFile>,
    /// Number of tokens of the vocabulary; null where it is not known.
    pub vocabulary: Option<usize>,
    /// Name of the tokenizer; null where it is not known.
    pub tokenizer: Option<String>,
    /// Token that ends a document; null where it is not known.
    pub end_token: Option<u32>,
    /// Largest token; null of text.
    pub largest_token: Option<u32>,
    /// Checksum of the content.
    pub checksum: String,
}

impl ContentsReport {
    /// Report of files that were read in full.
    pub fn new(files: &[Contents]) -> Self {
        Self { version: ReportVersion::CURRENT, files: files.iter().map(FileContents::new).collect() }
    }

    /// A table with a row for each file.
    pub fn text(&self) -> Table {
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
        table(&header, &self.files.iter().map(FileContents::row).collect::<Vec<_>>())
    }
}

impl FileContents {
    fn new(contents: &Contents) -> Self {
        let vocabulary = contents.vocabulary;
        Self {
            path: contents.path.to_string_lossy().into_owned(),
            format: contents.format.to_string(),
            bytes: contents.bytes,
            tokens: contents.tokens,
            documents: contents.documents,
            skipped_lines: contents.skipped.iter().map(|lines| SkippedFile::new(&contents.path, lines)).collect(),
            vocabulary: vocabulary.map(|vocabulary| vocabulary.size),
            tokenizer: vocabulary.map(|vocabulary| vocabulary.name.to_string()),
            end_token: vocabulary.and_then(|vocabulary| vocabulary.end),
            largest_token: contents.largest,
            checksum: format!("xxh3-{:016x}", contents.checksum),
        }
    }

    fn row(&self) -> Vec<String> {
        let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        vec![
            self.path.clone(),
            self.format.clone(),
            bytes(self.bytes),
            known(self.tokens.map(|tokens| tokens.to_string())),
            self.documents.to_string(),
            known(self.skipped_lines.first().map(|skipped| skipped.count.to_string())),
            known(self.vocabulary.map(|size| size.to_string())),
            known(self.tokenizer.clone()),
            known(self.largest_token.map(|token| token.to_string())),
            self.checksum.clone(),
        ]
    }
}
