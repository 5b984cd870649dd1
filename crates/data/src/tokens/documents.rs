//! Which document a token belongs to.

use super::Tokens;

/// The document that holds the token at `position`: the last one that begins there or before it. `position` is below the
/// number of tokens.
pub(crate) fn document_at(tokens: &dyn Tokens, position: usize) -> usize {
    // Starts before `low` are at most `position`, those from `high` on above it.
    let (mut low, mut high) = (1, tokens.documents());
    while low < high {
        let middle = low + (high - low) / 2;
        if tokens.document_start(middle) <= position {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low - 1
}
