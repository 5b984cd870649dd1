//! What a rank is doing: a cheap record for reports and for the ledger's key.

use std::fmt;

/// A layer's name for reports and ledgers: `embedding`, `block 3`, `head`, `step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    name: &'static str,
    index: Option<u32>,
}

impl Label {
    /// A layer that exists once, such as `head`.
    pub const fn new(name: &'static str) -> Self {
        Self { name, index: None }
    }

    /// One of several layers of a kind, such as `block 3`.
    pub const fn indexed(name: &'static str, index: u32) -> Self {
        Self { name, index: Some(index) }
    }

    /// The name without its number.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The number of one of several.
    pub const fn index(&self) -> Option<u32> {
        self.index
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{} {index}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// The layer and operation a rank has entered last (see [`RankContext::enter`](crate::RankContext::enter)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// The layer.
    pub layer: Label,
    /// The operation within the layer, such as `backward gemm qkv`.
    pub operation: &'static str,
}

impl Activity {
    /// What a rank does before its first `enter`.
    pub const START: Activity = Activity { layer: Label::new("job"), operation: "start" };

    /// What a process does while it is no rank of a job.
    pub const BETWEEN_JOBS: Activity = Activity { layer: Label::new("process"), operation: "between jobs" };
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.layer, self.operation)
    }
}
