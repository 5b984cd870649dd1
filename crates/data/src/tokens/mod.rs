//! Files of tokens: this program's own, Megatron-LM's and llm.c's, and those without a header.

mod documents;
mod element;
mod joined;
pub(crate) mod llm_c;
pub(crate) mod megatron;
pub(crate) mod quadrille;
mod raw;
mod source;
mod stored;

use std::fmt::Debug;

use crate::{DataError, Vocabulary};
pub(crate) use documents::{copy_starts, document_at, document_start};
pub(crate) use element::Element;
pub use joined::Joined;
pub use llm_c::LlmCFile;
pub use megatron::MegatronFile;
pub use quadrille::TokenFile;
pub use raw::RawFile;
pub use source::TokenSource;
pub(crate) use stored::{StoredFile, Table, u32_at, u64_at};

/// Tokens that are read at a time.
const PART: usize = 1 << 16;

/// Reader of tokens, with the position of their first one.
pub(crate) type PartReader<'a> = dyn FnMut(usize, &[u32]) -> Result<(), DataError> + 'a;

/// What all files of tokens can do.
pub(crate) trait Tokens: Debug + Send + Sync {
    /// Number of tokens.
    fn len(&self) -> usize;

    /// Copies the tokens from `start` on into `out`.
    fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError>;

    /// Number of documents, of which every token belongs to one.
    fn documents(&self) -> Result<usize, DataError>;

    /// Positions of the first tokens of the documents from `first` on, as many as `starts` has room for; [`Self::len`] for
    /// what follows the last document.
    fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError>;

    /// Whose tokens they are, where the file says it.
    fn vocabulary(&self) -> Option<Vocabulary>;

    /// Checks everything that opening leaves unchecked: reads all.
    fn verify(&self) -> Result<(), DataError> {
        self.each_part(&mut |_, _| Ok(()))
    }

    /// Reads all tokens, a part at a time.
    fn each_part(&self, see: &mut PartReader) -> Result<(), DataError> {
        let mut buffer = vec![0; PART];
        for start in (0..self.len()).step_by(PART) {
            let tokens = &mut buffer[..PART.min(self.len() - start)];
            self.window(start, tokens)?;
            see(start, tokens)?;
        }
        Ok(())
    }
}

/// [`DataError::OutOfRange`] unless `len` tokens hold a window of `count` from `start` on.
pub(crate) fn check_range(start: usize, count: usize, len: usize) -> Result<(), DataError> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        end => Err(DataError::OutOfRange { start, end: end.unwrap_or(usize::MAX), present: len }),
    }
}
