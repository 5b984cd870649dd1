//! Targets that do not count.

/// A target token that is left out of the loss, its gradient and its count: padding after a document, or a token that
/// training shall not learn by heart. No vocabulary is so large.
pub const IGNORED: u32 = u32::MAX;
