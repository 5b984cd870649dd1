//! Sizes of logical matrices, in terms of what differs between layouts.

use quadrille_spec::{Axis, Layout};

use crate::SharedKeys;
use crate::queues::token_axes;

/// Rows or columns of a logical matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The same in every layout.
    Fixed(usize),
    /// Token rows of one overlap chunk of a pass over one microbatch, of all data and expert ranks together.
    Tokens,
    /// So many rows of a vocabulary, padded.
    Padded(usize),
    /// Keys and values, or keys: of `heads` heads, or, where x has more ranks than that, of a copy for every rank.
    KeysValues {
        /// Columns beside them: those of the queries.
        beside: usize,
        /// Heads of the model.
        heads: usize,
        /// Columns of a key, or of a key and its value.
        each: usize,
    },
    /// Rows of a matrix for every expert, one block after the other.
    Experts {
        /// How many.
        count: usize,
        /// Rows of each.
        each: usize,
    },
    /// Places at every expert for the tokens of one overlap chunk of a pass over one microbatch, of all data ranks together.
    Slots {
        /// How many experts.
        experts: usize,
        /// Consecutive tokens of a sequence that share the places of an expert.
        group: usize,
        /// Places of an expert for them.
        slots: usize,
    },
    /// Rows that the tokens of one overlap chunk of a pass over one microbatch choose, of all data ranks together, by expert: as
    /// many as choose it. Counted as if loads were equal.
    Queues {
        /// How many experts.
        experts: usize,
        /// How many a token chooses.
        per_token: usize,
    },
    /// One for each rank with tokens of its own.
    TokenRanks,
    /// Sequences of one overlap chunk of a pass over one microbatch, of all data ranks together.
    Sequences,
}

impl Extent {
    /// How many there are in a layout, padding and copies included.
    pub fn of(self, layout: &Layout) -> usize {
        match self {
            Self::Fixed(size) => size,
            Self::Tokens => layout.grid.batch_shares() * layout.microbatch / layout.overlap_chunks * layout.seq_len,
            Self::Padded(size) => layout.padded(size),
            Self::KeysValues { beside, heads, each } => beside + heads.max(layout.grid.size(Axis::X)) * each,
            Self::Experts { count, each } => count * each,
            Self::Slots { experts, .. } => {
                let x = if layout.scatters_places() { layout.grid.size(Axis::X) } else { 1 };
                let ranks = Self::Tokens.of(layout) / (layout.rows() / layout.overlap_chunks);
                experts * self.places_of_rank(layout) * x * ranks
            }
            Self::Queues { per_token, .. } => per_token * Self::Tokens.of(layout),
            Self::TokenRanks => layout.grid.size_of(token_axes(layout)),
            Self::Sequences => Self::Tokens.of(layout) / layout.seq_len,
        }
    }

    /// How many blocks of rows follow each other, which sharding cuts alike.
    pub fn blocks(self) -> usize {
        match self {
            Self::Experts { count, .. } | Self::Slots { experts: count, .. } | Self::Queues { experts: count, .. } => {
                count
            }
            _ => 1,
        }
    }

    /// Places at one expert for the tokens of one rank; 0 of what is no places.
    pub fn places_of_rank(self, layout: &Layout) -> usize {
        match self {
            Self::Slots { group, slots, .. } => layout.places_of_rank(group, slots),
            _ => 0,
        }
    }

    /// Which columns of a rank are copies of other ranks', if some are.
    pub fn shared_keys(self, layout: &Layout) -> Option<SharedKeys> {
        let (Self::KeysValues { beside, heads, each }, x) = (self, layout.grid.size(Axis::X)) else { return None };
        (x > heads).then(|| SharedKeys { own: beside / x, copied: each, copies: x / heads })
    }

    /// How many of them mean something: no padding, no copies. Token rows are counted as they are.
    pub fn logical(self, layout: &Layout) -> usize {
        match self {
            Self::Padded(size) => size,
            Self::KeysValues { beside, heads, each } => beside + heads * each,
            _ => self.of(layout),
        }
    }
}

impl From<usize> for Extent {
    fn from(size: usize) -> Self {
        Self::Fixed(size)
    }
}
