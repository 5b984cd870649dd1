//! Token and position tables, and patches.

use quadrille_spec::Axis;
use quadrille_step::{ValueId, kind};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

type Swept = Result<usize, EngineError>;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn embed(&mut self, op: &kind::Embed) -> Swept {
        let kind::Embed { table, output } = *op;
        self.write(output, |rank, y| {
            let ((rows, cols), start) = (rank.dims(output), rank.vocabulary_start(table));
            kernels::embed_forward(
                &rank.pool,
                rows,
                cols,
                &rank.samples.tokens[0][rank.sample_rows(output)],
                rank.read(table)?,
                start,
                y,
            );
            Ok(y.len())
        })
    }

    pub(super) fn embed_backward(&mut self, op: &kind::EmbedBackward) -> Swept {
        let kind::EmbedBackward { gradient, output, write } = *op;
        self.write(output, |rank, dtable| {
            let ((rows, cols), start) = (rank.dims(gradient), rank.vocabulary_start(output));
            let (add, dy) = (rank.accumulates(write), rank.read(gradient)?);
            kernels::embed_backward(
                &rank.pool,
                rows,
                cols,
                &rank.samples.tokens[0][rank.sample_rows(gradient)],
                dy,
                dtable,
                start,
                add,
            );
            Ok(dy.len())
        })
    }

    pub(super) fn patches(&mut self, op: &kind::Patches) -> Swept {
        let output = op.output;
        self.write(output, |rank, y| {
            let ((_, values), rows) = (rank.dims(output), rank.sample_rows(output));
            let numbers = &rank.samples.patches[0][rows.start * values..rows.end * values];
            kernels::rounded(&rank.pool, numbers, y);
            Ok(y.len())
        })
    }

    pub(super) fn add_positions(&mut self, op: &kind::AddPositions) -> Swept {
        let kind::AddPositions { positions, output, .. } = *op;
        self.write(output, |rank, x| {
            let ((rows, cols), at) = (rank.dims(output), rank.rows_of(output));
            let pass = &rank.pass;
            let position = |row: usize| pass.position(at, row).unwrap_or_else(|| at.position(row));
            kernels::add_positions(&rank.pool, rows, cols, x, rank.read(positions)?, position);
            Ok(x.len())
        })
    }

    pub(super) fn positions_backward(&mut self, op: &kind::PositionsBackward) -> Swept {
        let kind::PositionsBackward { gradient, output, write } = *op;
        self.write(output, |rank, dpositions| {
            let ((rows, cols), at) = (rank.dims(gradient), rank.rows_of(gradient));
            let (dy, add) = (rank.read(gradient)?, rank.accumulates(write));
            kernels::positions_backward(&rank.pool, rows, cols, dy, dpositions, |row| at.position(row), add);
            Ok(dy.len())
        })
    }

    /// The first token id of this rank's rows of a vocabulary table.
    fn vocabulary_start(&self, table: ValueId) -> usize {
        self.program.layout.grid.shard_index(self.place, &[Axis::Y, Axis::X]) * self.value(table).local_rows
    }
}
