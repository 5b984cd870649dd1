//! Writes a token file as tokens come, in bounded memory.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::header::{BLOCK_BYTES, HEADER_BYTES, Header};
use crate::output::{Draft, Mark, Scratch, TokenWriter, end_token};
use crate::{DataError, Vocabulary};

/// A token file that is being written: marked documents end with the vocabulary's end token.
pub(crate) struct QuadrilleWriter {
    body: Body,
    header: Header,
    /// What ends the present document.
    end: Option<u32>,
    /// Positions of the documents' first tokens: they follow the tokens, and may be many.
    starts: Scratch,
    /// First token of the present document.
    start: u64,
    /// Bytes of tokens, kept for their buffer.
    bytes: Vec<u8>,
}

/// What follows the header, with its checksums.
struct Body {
    draft: Draft,
    /// What is not yet a whole block.
    block: Vec<u8>,
    checksums: Vec<u8>,
}

impl QuadrilleWriter {
    /// Begins the file that will have the name `path`.
    pub fn create(path: &Path, vocabulary: Vocabulary, corpus_key: u128) -> Result<Self, DataError> {
        let mut draft = Draft::create(path)?;
        let header = Header { vocabulary, tokens: 0, documents: 0, corpus_key, checksums_hash: 0 };
        draft.write(&[0; HEADER_BYTES])?;
        let body = Body { draft, block: Vec::new(), checksums: Vec::new() };
        Ok(Self { body, header, end: None, starts: Scratch::create(path)?, start: 0, bytes: Vec::new() })
    }
}

impl TokenWriter for QuadrilleWriter {
    fn begin_document(&mut self, mark: Mark) -> Result<(), DataError> {
        self.end = end_token(self.header.vocabulary, mark)?;
        Ok(())
    }

    fn push(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        for part in tokens.chunks(BLOCK_BYTES) {
            self.bytes.clear();
            self.header.element().write(part, &mut self.bytes);
            self.body.append(&self.bytes)?;
        }
        self.header.tokens += tokens.len() as u64;
        Ok(())
    }

    fn end_document(&mut self) -> Result<(), DataError> {
        if let Some(end) = self.end.take() {
            self.push(&[end])?;
        }
        self.starts.write(&self.start.to_le_bytes())?;
        self.header.documents += 1;
        self.start = self.header.tokens;
        Ok(())
    }

    fn tokens(&self) -> u64 {
        self.header.tokens
    }

    fn documents(&self) -> u64 {
        self.header.documents
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<PathBuf>, DataError> {
        let padding =
            self.header.index_start() - u128::from(self.header.tokens) * self.header.element().width() as u128;
        self.body.append(&[0; 8][..padding as usize])?;
        self.starts.read_back(&mut |bytes| self.body.append(bytes))?;
        let (mut draft, checksums) = self.body.finish()?;
        draft.write(&checksums)?;
        draft.write_at(0, &Header { checksums_hash: xxh3_64(&checksums), ..self.header }.to_bytes())?;
        Ok(vec![draft.publish()?])
    }
}

impl Body {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.block.extend_from_slice(bytes);
        let whole = self.block.len() / BLOCK_BYTES * BLOCK_BYTES;
        self.write(whole)
    }

    /// The draft, complete but for the checksums.
    fn finish(mut self) -> Result<(Draft, Vec<u8>), DataError> {
        self.write(self.block.len())?;
        Ok((self.draft, self.checksums))
    }

    /// Writes the first `length` bytes that wait: whole blocks, or all at the end.
    fn write(&mut self, length: usize) -> Result<(), DataError> {
        for block in self.block[..length].chunks(BLOCK_BYTES) {
            self.checksums.extend_from_slice(&xxh3_64(block).to_le_bytes());
        }
        self.draft.write(&self.block[..length])?;
        self.block.drain(..length);
        Ok(())
    }
}
