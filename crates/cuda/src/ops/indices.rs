//! Where elements lie in the global batch, as data that kernels evaluate.

use quadrille_tensor::ContextPart;

use crate::array::Array;
use crate::words::Argument;

/// Implements [`Argument`] for a structure of arguments, in the order of its fields.
macro_rules! fields {
    ($($type:ty: $($field:ident)*;)*) => {
        $(impl Argument for $type {
            fn put(&self, words: &mut Vec<u64>) {
                $(self.$field.put(words);)*
            }
        })*
    };
}
pub(super) use fields;

/// A dropout's draw for a logical index: an element stays if Philox 4x32-10 under the key, at counter `index / 4`, gives a
/// word number `index % 4` of at least the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// The key.
    pub key: [u32; 2],
    /// The least word of an element that stays; 0: all stay as they are.
    pub threshold: u32,
    /// What elements that stay are multiplied with.
    pub scale: f64,
}

impl Draw {
    /// All elements stay.
    pub const NONE: Self = Draw { key: [0, 0], threshold: 0, scale: 1.0 };
}

impl Argument for Draw {
    fn put(&self, words: &mut Vec<u64>) {
        words.push(u64::from(self.key[0]) | u64::from(self.key[1]) << 32);
        self.threshold.put(words);
        self.scale.put(words);
    }
}

/// From local rows to sequences and positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// The sequence, in the global batch, of the first row of the rank's share.
    pub first_sequence: usize,
    /// The first row, counted in that share.
    pub first: usize,
    /// The tokens of each sequence that the rank has.
    pub part: ContextPart,
    /// Tokens of a sequence.
    pub seq_len: usize,
}

impl Rows {
    /// Rows of whole sequences, from the first one of the batch on.
    pub fn whole(seq_len: usize) -> Self {
        Self { first_sequence: 0, first: 0, part: ContextPart::WHOLE, seq_len }
    }
}

/// The positions of local rows in their sequences.
#[derive(Debug, Clone, Copy)]
pub struct Positions {
    /// Where the rows lie.
    pub rows: Rows,
    /// Of a pass of generation, by sequence of the global batch: the position of its first row, `u32`. None: rows are of
    /// whole sequences.
    pub starts: Option<Array>,
    /// Positions that there are in a pass of generation.
    pub capacity: usize,
}

/// Which elements of a local matrix a dropout keeps.
#[derive(Debug, Clone, Copy)]
pub struct ElementMask {
    /// The draw for the logical index `row * cols + col`.
    pub draw: Draw,
    /// Where the local rows lie.
    pub rows: Rows,
    /// The logical column of the first local one.
    pub first_col: usize,
    /// Logical columns.
    pub cols: usize,
}

impl ElementMask {
    /// All elements stay.
    pub(crate) fn none() -> Self {
        Self { draw: Draw::NONE, rows: Rows::whole(1), first_col: 0, cols: 1 }
    }
}

/// Which attention probabilities a dropout keeps.
#[derive(Debug, Clone, Copy)]
pub struct AttentionMask {
    /// The draw for the logical index `((sequence * heads + head) * seq_len + query) * seq_len + key`.
    pub draw: Draw,
    /// The first local sequence, in the global batch.
    pub first_sequence: usize,
    /// The first local head.
    pub first_head: usize,
    /// Heads of the block on all ranks.
    pub heads: usize,
    /// Tokens of a sequence.
    pub seq_len: usize,
}

impl AttentionMask {
    /// All probabilities stay.
    pub(crate) const NONE: Self = Self { draw: Draw::NONE, first_sequence: 0, first_head: 0, heads: 1, seq_len: 1 };
}

fields! {
    Rows: first_sequence first part seq_len;
    Positions: rows starts capacity;
    ElementMask: draw rows first_col cols;
    AttentionMask: draw first_sequence first_head heads seq_len;
}
