//! Positions of elements in the global batch, as data: every device evaluates it by itself, to the same numbers.

use quadrille_spec::Dropout;

use crate::state::rows::Rows;

/// The positions of local rows in their sequences.
#[derive(Debug, Clone, Copy)]
pub struct Positions<'p> {
    /// Where the rows lie.
    pub rows: Rows,
    /// Of a pass of generation, by sequence of the global batch: the position of its first row. Empty: rows are of whole
    /// sequences.
    pub starts: &'p [usize],
    /// Positions that there are in a pass of generation.
    pub capacity: usize,
}

impl Positions<'_> {
    /// The position of a local row.
    pub fn position(&self, row: usize) -> usize {
        self.in_pass(row).unwrap_or_else(|| self.rows.position(row))
    }

    /// The row of a table of angles: it has those of the rank's own tokens, in a pass of generation of all positions.
    pub fn angle(&self, row: usize) -> usize {
        self.in_pass(row).unwrap_or_else(|| self.rows.token(row))
    }

    /// Of padding beyond the cache the position of the last.
    fn in_pass(&self, row: usize) -> Option<usize> {
        let start = self.starts.get(self.rows.sequence(row))?;
        Some((start + self.rows.position(row)).min(self.capacity - 1))
    }
}

/// Which elements of a local matrix a dropout keeps.
#[derive(Debug, Clone, Copy)]
pub struct ElementMask {
    /// The draw for a logical index, and the factor of what is kept.
    pub dropout: Dropout,
    /// Where the local rows lie.
    pub rows: Rows,
    /// The logical column of the first local one.
    pub first_col: usize,
    /// Logical columns.
    pub cols: usize,
}

impl ElementMask {
    /// Whether the element at a local row and column stays.
    #[inline]
    pub fn keeps(&self, row: usize, col: usize) -> bool {
        self.dropout.keeps((self.rows.logical(row) * self.cols + self.first_col + col) as u64)
    }
}

/// Which attention probabilities a dropout keeps.
#[derive(Debug, Clone, Copy)]
pub struct AttentionMask {
    /// The draw for a logical index, and the factor of what is kept.
    pub dropout: Dropout,
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
    /// Whether the probability of a local sequence and head stays, at the positions of a query and a key.
    #[inline]
    pub fn keeps(&self, sequence: usize, head: usize, query: usize, key: usize) -> bool {
        let Self { first_sequence, first_head, heads, seq_len, .. } = *self;
        let row = ((first_sequence + sequence) * heads + first_head + head) * seq_len + query;
        self.dropout.keeps((row * seq_len + key) as u64)
    }
}
