//! Files before their text is tokenized: formats, documents, lines without a text.

use std::path::PathBuf;

use crate::open::open_tokens;
use crate::text::{DocumentCount, Format, Input, Reading, count_documents};
use crate::{DataError, SkippedLines, Vocabulary};

/// A file that will be read, or a pair of Megatron-LM's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSurvey {
    /// The file; of a pair the index.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Size in bytes, of a pair that of the tokens.
    pub bytes: u64,
    /// Documents; `None` for tokens that must be read for it.
    pub documents: Option<u64>,
    /// Tokens; text has none yet.
    pub tokens: Option<u64>,
    /// Vocabulary of the tokens, where the file says it.
    pub vocabulary: Option<Vocabulary>,
    /// Lines that are skipped.
    pub skipped: Option<SkippedLines>,
}

impl FileSurvey {
    /// Looks at a file. One with a document in each line is read for it.
    ///
    /// # Errors
    /// A file that cannot be read; lines without a text.
    pub(crate) fn new(input: &Input, reading: &Reading) -> Result<Self, DataError> {
        let (documents, tokens, vocabulary, skipped) = match input.format {
            Format::Text | Format::Binary => (Some(1), None, None, None),
            format if format.is_tokens() => {
                let source = open_tokens(input, None)?;
                let documents = format.lists_documents().then(|| source.documents()).transpose()?;
                (documents.map(|count| count as u64), Some(source.len() as u64), source.vocabulary(), None)
            }
            _ => {
                let DocumentCount { documents, skipped } = count_documents(input, reading)?;
                (Some(documents), None, None, skipped)
            }
        };
        let Input { path, format, bytes } = input.clone();
        Ok(Self { path, format, bytes, documents, tokens, vocabulary, skipped })
    }
}
