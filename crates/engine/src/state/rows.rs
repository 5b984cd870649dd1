//! Positions of a rank's token rows in the global batch.

use quadrille_tensor::ContextPart;

/// From local rows to sequences and positions.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// The sequence, in the global batch, of the first row that this rank's share of the chunk has.
    pub first_sequence: usize,
    /// The value's first row, counted in that share.
    pub first: usize,
    /// The tokens of each sequence that this rank has.
    pub part: ContextPart,
    /// Tokens of a sequence.
    pub seq_len: usize,
}

impl Rows {
    /// The sequence of a local row, in the global batch.
    pub fn sequence(self, row: usize) -> usize {
        self.first_sequence + (self.first + row) / self.part.tokens(self.seq_len)
    }

    /// The position of a local row in its sequence.
    pub fn position(self, row: usize) -> usize {
        self.part.position(self.token(row), self.seq_len)
    }

    /// The number of a local row among the tokens of its sequence that this rank has.
    pub fn token(self, row: usize) -> usize {
        (self.first + row) % self.part.tokens(self.seq_len)
    }

    /// The row in the global batch.
    pub fn logical(self, row: usize) -> usize {
        self.sequence(row) * self.seq_len + self.position(row)
    }
}
