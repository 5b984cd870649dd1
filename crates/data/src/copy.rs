//! Documents of a file of tokens into another file, token by token.

use std::ops::{AddAssign, Range};

use crate::open::open_tokens;
use crate::output::{Mark, TokenWriter};
use crate::text::Input;
use crate::{DataError, TokenSource, Vocabulary};

/// Tokens that are read and written at a time.
const PART: usize = 1 << 16;
/// Starts of documents that are read at once.
const DOCUMENTS: usize = 512;

/// Documents of files of tokens that had no end token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends {
    /// Those that still have none.
    pub missing: u64,
    /// Those that it was appended to.
    pub appended: u64,
}

impl AddAssign for Ends {
    fn add_assign(&mut self, other: Self) {
        self.missing += other.missing;
        self.appended += other.appended;
    }
}

/// Writes the documents of a file of tokens: each as it is, but that the token that marks its end or beginning moves to where
/// the writer's format has it. With `append_end` documents without that token get it.
pub(crate) fn copy_documents(
    input: &Input,
    vocabulary: Vocabulary,
    append_end: bool,
    writer: &mut dyn TokenWriter,
    progress: &mut dyn FnMut(u64),
) -> Result<Ends, DataError> {
    let source = open_tokens(input, Some(vocabulary))?;
    let mut stream = Stream::new(&source);
    let mut told = 0;
    let len = source.len().max(1);
    let mut ends = Ends::default();
    for document in 0..source.documents()? {
        let all = stream.document(document)?;
        let content = stream.content(all.clone(), vocabulary.end)?;
        let mark = if append_end || content.len() < all.len() {
            Mark::Present
        } else if document == 0 && matches!(source, TokenSource::LlmC(_)) {
            Mark::Continued
        } else {
            Mark::Absent
        };
        if content.len() == all.len() {
            *(if append_end { &mut ends.appended } else { &mut ends.missing }) += 1;
        }
        writer.begin_document(mark)?;
        for start in content.clone().step_by(PART) {
            let tokens = stream.get(start..content.end.min(start + PART))?;
            source.check(start, tokens, vocabulary.size)?;
            writer.push(tokens)?;
            if start.saturating_sub(told) >= 16 * PART {
                told = start;
                progress((u128::from(input.bytes) * start as u128 / len as u128) as u64);
            }
        }
        writer.end_document()?;
    }
    progress(input.bytes);
    Ok(ends)
}

/// The tokens and documents of a source in their order, many read at once.
struct Stream<'a> {
    source: &'a TokenSource,
    /// Tokens that are held, and the position of the first.
    tokens: Vec<u32>,
    first: usize,
    /// Starts of the documents that are held, and the number of the first.
    starts: Vec<usize>,
    first_document: usize,
}

impl<'a> Stream<'a> {
    fn new(source: &'a TokenSource) -> Self {
        Self { source, tokens: Vec::new(), first: 0, starts: Vec::new(), first_document: 0 }
    }

    /// The positions of a document.
    fn document(&mut self, document: usize) -> Result<Range<usize>, DataError> {
        if self.starts.is_empty() || document - self.first_document + 1 >= self.starts.len() {
            (self.first_document, self.starts) = (document, vec![0; DOCUMENTS]);
            self.source.document_starts(document, &mut self.starts)?;
        }
        let at = document - self.first_document;
        Ok(self.starts[at]..self.starts[at + 1])
    }

    /// A document without the token that marks it, which is the one that ends documents.
    fn content(&mut self, all: Range<usize>, end: Option<u32>) -> Result<Range<usize>, DataError> {
        let begins = matches!(self.source, TokenSource::LlmC(_));
        let mark = if begins { all.start } else { all.end.saturating_sub(1) };
        if all.is_empty() || Some(self.get(mark..mark + 1)?[0]) != end {
            return Ok(all);
        }
        Ok(if begins { all.start + 1..all.end } else { all.start..mark })
    }

    /// At most [`PART`] tokens.
    fn get(&mut self, range: Range<usize>) -> Result<&[u32], DataError> {
        if range.start < self.first || range.end > self.first + self.tokens.len() {
            self.first = range.start;
            self.tokens.resize(range.len().max(PART.min(self.source.len().saturating_sub(range.start))), 0);
            let read = self.source.window(self.first, &mut self.tokens);
            read.inspect_err(|_| self.tokens.clear())?;
        }
        Ok(&self.tokens[range.start - self.first..range.end - self.first])
    }
}
