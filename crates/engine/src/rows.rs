//! Where the token rows of a rank lie in the global batch.

use quadrille_spec::{Axis, AxisSet};
use quadrille_step::{Value, ValueId};
use quadrille_tensor::ContextPart;

use crate::{Backend, RankEngine};

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

impl<B: Backend> RankEngine<'_, B> {
    /// The part of each sequence that this rank has.
    pub(crate) fn context_part(&self) -> ContextPart {
        ContextPart { part: self.place.on(Axis::Context), parts: self.program.grid().size(Axis::Context) }
    }

    /// Where the rows of a value of tokens lie.
    pub(crate) fn rows_of(&self, value: ValueId) -> Rows {
        let value = self.program.value(value);
        let layout = &self.program.layout;
        let index = self.share_index(value);
        let sequences = layout.microbatch / layout.grid.size(Axis::Z) / layout.overlap_chunks;
        Rows {
            first_sequence: self.first_sequence() + value.chunk.unwrap_or(0) * sequences,
            first: index * value.local_rows,
            part: self.context_part(),
            seq_len: layout.seq_len,
        }
    }

    /// The rows of the microbatch's samples that belong to a value.
    pub(crate) fn sample_rows(&self, value: ValueId) -> std::ops::Range<usize> {
        let layout = &self.program.layout;
        let value = self.program.value(value);
        let chunk = value.chunk.unwrap_or(0) * (layout.rows() / layout.overlap_chunks);
        let first = chunk + self.share_index(value) * value.local_rows;
        first..first + value.local_rows
    }

    /// The numbers of the microbatch's patches that belong to a value.
    pub(crate) fn sample_numbers(&self, value: ValueId) -> std::ops::Range<usize> {
        let rows = self.sample_rows(value);
        let values = self.program.value(value).local_cols;
        rows.start * values..rows.end * values
    }

    /// Sequences of this rank's part of the current microbatch, from its first on, that count.
    pub(crate) fn counted_sequences(&self) -> usize {
        let layout = &self.program.layout;
        let own = layout.microbatch / layout.grid.size(Axis::Z);
        self.sequences.saturating_sub(self.first_sequence()).min(own)
    }

    /// Rows of a value, from its first on, that belong to sequences that count.
    pub(crate) fn counted_rows(&self, value: ValueId) -> usize {
        let rows = self.sample_rows(value);
        let counted = self.counted_sequences() * self.context_part().tokens(self.program.layout.seq_len);
        counted.clamp(rows.start, rows.end) - rows.start
    }

    /// Which part of its (data, expert, z, context) rank's rows this rank has of a value.
    fn share_index(&self, value: &Value) -> usize {
        let share: AxisSet = self.program.layout.row_axes().collect();
        let inner: Vec<Axis> = value.sharding.rows.iter().copied().filter(|axis| !share.contains(*axis)).collect();
        self.program.grid().shard_index(self.place, &inner)
    }

    /// The first sequence, in the global batch, of this rank's part of the current microbatch.
    pub(crate) fn first_sequence(&self) -> usize {
        self.first_sequence_of(self.microbatch)
    }

    /// First sequence of another microbatch, as [`Self::first_sequence`].
    pub(crate) fn first_sequence_of(&self, microbatch: usize) -> usize {
        let layout = &self.program.layout;
        layout.first_of_share(self.place)
            + microbatch * layout.microbatch
            + self.place.on(Axis::Z) * (layout.microbatch / layout.grid.size(Axis::Z))
    }

    /// The logical column of a value's first local column.
    pub(crate) fn first_col(&self, value: ValueId) -> usize {
        let value = self.program.value(value);
        self.program.grid().shard_index(self.place, &value.sharding.cols) * value.local_cols
    }
}
