//! Ids that stand for no token of the vocabulary.

/// Target that is left out of the loss, its gradient and its count: it follows padding, or training shall not memorize it.
/// No vocabulary is so large.
pub const IGNORED: u32 = u32::MAX;

/// Input at a position that holds no token, such as those behind the end of a document. Routers of experts leave padding out:
/// it has no experts, no place at them, and no part of their losses and loads. Its target is [`IGNORED`].
pub const PADDING: u32 = u32::MAX;
