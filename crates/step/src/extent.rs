//! Sizes of logical matrices, in terms of what differs between layouts.

use quadrille_spec::{Axis, Layout};

/// Rows or columns of a logical matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The same in every layout.
    Fixed(usize),
    /// Token rows of one overlap chunk of a pass over one microbatch, of all data ranks together.
    Tokens,
    /// So many rows of a vocabulary, padded to a multiple of x times y.
    Padded(usize),
    /// Keys and values: of `heads` heads, or, where x has more ranks than that, of a copy for every rank.
    KeysValues {
        /// Columns beside them: those of the queries.
        beside: usize,
        /// Heads of the model.
        heads: usize,
        /// Columns of a key and its value.
        each: usize,
    },
}

impl Extent {
    /// How many there are in a layout, padding and copies included.
    pub fn of(self, layout: &Layout) -> usize {
        match self {
            Self::Fixed(size) => size,
            Self::Tokens => layout.grid.size(Axis::Data) * layout.microbatch / layout.overlap_chunks * layout.seq_len,
            Self::Padded(size) => size.next_multiple_of(layout.grid.size(Axis::X) * layout.grid.size(Axis::Y)),
            Self::KeysValues { beside, heads, each } => beside + heads.max(layout.grid.size(Axis::X)) * each,
        }
    }

    /// How many of them mean something: no padding, no copies. Token rows are counted as they are.
    pub fn logical(self, layout: &Layout) -> usize {
        match self {
            Self::Padded(size) => size,
            Self::KeysValues { beside, heads, each } => beside + heads * each,
            Self::Fixed(_) | Self::Tokens => self.of(layout),
        }
    }
}

impl From<usize> for Extent {
    fn from(size: usize) -> Self {
        Self::Fixed(size)
    }
}
