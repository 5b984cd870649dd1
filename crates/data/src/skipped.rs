//! The skipped lines of texts, stored beside their tokens: these are used again without reading the texts.

use std::path::{Path, PathBuf};

use quadrille_files::{Document, replace};

use crate::text::{Input, Reading, count_documents};
use crate::{DataError, SkippedLines};

/// Some hundred bytes for each file of a corpus.
const DOCUMENT: Document = Document::new("a record of skipped lines", 1 << 28);

/// The skipped lines of the files of one corpus, in their order.
pub(crate) struct SkippedRecord {
    path: PathBuf,
}

impl SkippedRecord {
    /// The record of the corpus with this key. Its file is hidden, since the cache may be a folder of text.
    pub fn new(cache_dir: &Path, key: u128) -> Self {
        Self { path: cache_dir.join(format!(".skipped-{key:032x}.json")) }
    }

    /// Stores the lines. Where that fails, the texts are read again for them, and nothing else is lost.
    pub fn write(&self, skipped: &[Option<SkippedLines>]) {
        _ = serde_json::to_vec(skipped).map(|bytes| replace(&self.path, &bytes));
    }

    /// Reads the lines; without a record that can be used, counts them in the texts.
    ///
    /// # Errors
    /// Those of counting.
    pub fn read(&self, inputs: &[Input], reading: &Reading) -> Result<Vec<Option<SkippedLines>>, DataError> {
        let stored: Option<Vec<Option<SkippedLines>>> =
            DOCUMENT.bytes(&self.path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match stored.filter(|stored| stored.len() == inputs.len()) {
            Some(stored) => Ok(stored),
            None => inputs.iter().map(|input| Ok(count_documents(input, reading)?.skipped)).collect(),
        }
    }
}
