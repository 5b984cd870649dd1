//! Writes llm.c's token files of GPT-2's tokens.

use std::path::{Path, PathBuf};

use super::{GPT2, HEADER_BYTES};
use crate::output::{Draft, Mark, TokenWriter};
use crate::{DataError, Vocabulary, VocabularyName};

/// A file that is being written: each document begins with the token 50256, but for the first, which may lack it.
pub(crate) struct LlmCWriter {
    draft: Draft,
    tokens: u64,
    documents: u64,
    bytes: Vec<u8>,
}

impl LlmCWriter {
    /// Begins the file that will have the name `path`.
    pub fn create(path: &Path, vocabulary: Vocabulary) -> Result<Self, DataError> {
        if vocabulary.name != VocabularyName::Gpt2 {
            return Err(DataError::Inexpressible {
                format: "llm.c",
                reason: format!("its files of 2 bytes a token hold gpt2's tokens, not those of {}", vocabulary.name),
                remedy: "use `data.tokenizer` gpt2, or `tokens.format` quadrille or megatron",
            });
        }
        let mut draft = Draft::create(path)?;
        draft.write(&[0; HEADER_BYTES])?;
        Ok(Self { draft, tokens: 0, documents: 0, bytes: Vec::new() })
    }

    fn append(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        self.bytes.clear();
        GPT2.element.write(tokens, &mut self.bytes);
        self.draft.write(&self.bytes)?;
        self.tokens += tokens.len() as u64;
        if self.tokens > i32::MAX as u64 {
            return Err(DataError::Inexpressible {
                format: "llm.c",
                reason: "its files have at most 2147483647 tokens".to_owned(),
                remedy: "prepare parts of the text into several files, or use `tokens.format` quadrille or megatron",
            });
        }
        Ok(())
    }
}

impl TokenWriter for LlmCWriter {
    fn begin_document(&mut self, mark: Mark) -> Result<(), DataError> {
        match mark {
            Mark::Present => self.append(&[GPT2.begin]),
            Mark::Absent if self.tokens > 0 => Err(DataError::Inexpressible {
                format: "llm.c",
                reason: format!(
                    "document {} has no end token, and its files tell documents apart by token {} between them",
                    self.documents, GPT2.begin
                ),
                remedy: "use `tokens.append_end`, or `tokens.format` quadrille or megatron",
            }),
            Mark::Absent | Mark::Continued => Ok(()),
        }
    }

    fn push(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        tokens.chunks(1 << 16).try_for_each(|part| self.append(part))
    }

    fn end_document(&mut self) -> Result<(), DataError> {
        self.documents += 1;
        Ok(())
    }

    fn tokens(&self) -> u64 {
        self.tokens
    }

    fn documents(&self) -> u64 {
        self.documents
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<PathBuf>, DataError> {
        let header = [GPT2.magic, GPT2.version, self.tokens as u32].map(u32::to_le_bytes);
        self.draft.write_at(0, header.as_flattened())?;
        Ok(vec![self.draft.publish()?])
    }
}
