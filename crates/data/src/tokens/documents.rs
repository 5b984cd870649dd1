//! Which document a token belongs to.

use super::Tokens;
use crate::DataError;

/// Copies the positions of the documents from `first` on from those of all, which lie in `len` tokens.
pub(crate) fn copy_starts(all: &[usize], len: usize, first: usize, starts: &mut [usize]) {
    for (document, start) in (first..).zip(starts) {
        *start = all.get(document).copied().unwrap_or(len);
    }
}

/// Position of the first token of a document; of the number of documents that of all tokens.
pub(crate) fn document_start(tokens: &dyn Tokens, document: usize) -> Result<usize, DataError> {
    let mut start = [0];
    tokens.document_starts(document, &mut start)?;
    Ok(start[0])
}

/// The document that holds the token at `position`: the last one that begins there or before it. `position` is below the
/// number of tokens.
pub(crate) fn document_at(tokens: &dyn Tokens, position: usize) -> Result<usize, DataError> {
    // Starts before `low` are at most `position`, those from `high` on above it.
    let mut low = 1;
    let mut high = tokens.documents()?;
    while low < high {
        let middle = low + (high - low) / 2;
        if document_start(tokens, middle)? <= position {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low - 1)
}
