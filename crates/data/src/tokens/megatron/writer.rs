//! Writes Megatron-LM's indexed data sets.

use std::path::{Path, PathBuf};

use super::{CODES, HEADER_BYTES, MAGIC, VERSION, pair};
use crate::output::{Draft, Mark, Scratch, TokenWriter, end_token};
use crate::tokens::Element;
use crate::{DataError, Vocabulary};

/// Tokens of a sequence at most: lengths have 31 bits. Longer documents have several sequences.
const LONGEST_SEQUENCE: u64 = 1 << 30;
/// Below this many tokens Megatron-LM writes 2 bytes a token, else 4.
const NARROW: usize = 65500;

/// A data set that is being written, in the type that Megatron-LM would choose; marked documents end with the
/// vocabulary's end token, as with its `--append-eod`.
pub(crate) struct MegatronWriter {
    data: Draft,
    index: Draft,
    element: Element,
    vocabulary: Vocabulary,
    /// What ends the present document.
    end: Option<u32>,
    /// Of every sequence that has ended, 4 bytes.
    lengths: Scratch,
    /// First sequences of the documents that have ended, 8 bytes each.
    firsts: Scratch,
    sequences: u64,
    documents: u64,
    tokens: u64,
    /// Tokens of the present sequence.
    length: u64,
    /// First sequence of the present document.
    first: u64,
    longest: u64,
    bytes: Vec<u8>,
}

impl MegatronWriter {
    /// Begins the pair that `path` names.
    pub fn create(path: &Path, vocabulary: Vocabulary) -> Result<Self, DataError> {
        Self::with_longest(path, vocabulary, LONGEST_SEQUENCE)
    }

    /// The same with another length of the longest sequence.
    pub(super) fn with_longest(path: &Path, vocabulary: Vocabulary, longest: u64) -> Result<Self, DataError> {
        let element = if vocabulary.size < NARROW { Element::U16 } else { Element::I32 };
        let (data, index) = pair(path);
        let lengths = Scratch::create(&index)?;
        let firsts = Scratch::create(&index)?;
        let data = Draft::create(&data)?;
        let index = Draft::create(&index)?;
        Ok(Self {
            data,
            index,
            element,
            vocabulary,
            end: None,
            lengths,
            firsts,
            sequences: 0,
            documents: 0,
            tokens: 0,
            length: 0,
            first: 0,
            longest,
            bytes: Vec::new(),
        })
    }

    fn end_sequence(&mut self) -> Result<(), DataError> {
        self.lengths.write(&(self.length as u32).to_le_bytes())?;
        self.sequences += 1;
        self.length = 0;
        Ok(())
    }
}

impl TokenWriter for MegatronWriter {
    fn begin_document(&mut self, mark: Mark) -> Result<(), DataError> {
        self.end = end_token(self.vocabulary, mark)?;
        Ok(())
    }

    fn push(&mut self, mut tokens: &[u32]) -> Result<(), DataError> {
        while !tokens.is_empty() {
            if self.length == self.longest {
                self.end_sequence()?;
            }
            let room = (self.longest - self.length).min(1 << 16) as usize;
            let (part, rest) = tokens.split_at(room.min(tokens.len()));
            self.bytes.clear();
            self.element.write(part, &mut self.bytes);
            self.data.write(&self.bytes)?;
            self.length += part.len() as u64;
            self.tokens += part.len() as u64;
            tokens = rest;
        }
        Ok(())
    }

    fn end_document(&mut self) -> Result<(), DataError> {
        if let Some(end) = self.end.take() {
            self.push(&[end])?;
        }
        self.end_sequence()?;
        self.firsts.write(&self.first.to_le_bytes())?;
        self.documents += 1;
        self.first = self.sequences;
        Ok(())
    }

    fn tokens(&self) -> u64 {
        self.tokens
    }

    fn documents(&self) -> u64 {
        self.documents
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<PathBuf>, DataError> {
        let code = CODES.into_iter().find(|(_, element)| *element == self.element).map_or(0, |(code, _)| code);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.push(code);
        header.extend_from_slice(&self.sequences.to_le_bytes());
        header.extend_from_slice(&(self.documents + 1).to_le_bytes());
        let index = &mut self.index;
        index.write(&header)?;
        self.lengths.read_back(&mut |bytes| index.write(bytes))?;
        let mut pointer = 0_u64;
        let width = self.element.width() as u64;
        self.lengths.read_back(&mut |bytes| {
            for length in bytes.as_chunks::<4>().0 {
                index.write(&pointer.to_le_bytes())?;
                pointer += u64::from(u32::from_le_bytes(*length)) * width;
            }
            Ok(())
        })?;
        self.firsts.read_back(&mut |bytes| index.write(bytes))?;
        index.write(&self.sequences.to_le_bytes())?;
        // Once nothing but names is missing, the old index goes first and the new one comes last: a machine that stops
        // in between leaves no index beside data of another.
        self.data.sync()?;
        self.index.sync()?;
        self.index.remove_old()?;
        Ok(vec![self.data.publish()?, self.index.publish()?])
    }
}
