//! Token and position tables, and patches.

use quadrille_spec::Axis;
use quadrille_step::{ValueId, kind};
use quadrille_tensor::{Shape, TableShape};

use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError, RankEngine};

type Swept = Result<usize, EngineError>;

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn embed(&mut self, op: &kind::Embed) -> Swept {
        let kind::Embed { table, output } = *op;
        self.write(output, |rank, y| {
            let shape = rank.table_shape(output, table);
            let rows = rank.sample_rows(output);
            rank.backend.embed_forward(shape, &rank.samples, rows, rank.read(table)?, y)?;
            Ok(y.elements())
        })
    }

    pub(super) fn embed_backward(&mut self, op: &kind::EmbedBackward) -> Swept {
        let kind::EmbedBackward { gradient, output, write } = *op;
        self.write(output, |rank, dtable| {
            let shape = rank.table_shape(gradient, output);
            let rows = rank.sample_rows(gradient);
            let add = rank.accumulates(write);
            let dy = rank.read(gradient)?;
            rank.backend.embed_backward(shape, &rank.samples, rows, dy, dtable, add)?;
            Ok(dy.elements())
        })
    }

    pub(super) fn patches(&mut self, op: &kind::Patches) -> Swept {
        let output = op.output;
        self.write(output, |rank, y| {
            rank.backend.patches(&rank.samples, rank.sample_numbers(output), y)?;
            Ok(y.elements())
        })
    }

    pub(super) fn add_positions(&mut self, op: &kind::AddPositions) -> Swept {
        let kind::AddPositions { positions, output, .. } = *op;
        self.write(output, |rank, x| {
            rank.backend.add_positions(rank.shape(output), x, rank.read(positions)?, rank.positions(output))?;
            Ok(x.elements())
        })
    }

    pub(super) fn positions_backward(&mut self, op: &kind::PositionsBackward) -> Swept {
        let kind::PositionsBackward { gradient, output, write } = *op;
        self.write(output, |rank, dpositions| {
            let shape = rank.shape(gradient);
            let at = rank.positions(gradient);
            let dy = rank.read(gradient)?;
            let add = rank.accumulates(write);
            rank.backend.positions_backward(shape, dy, dpositions, at, add)?;
            Ok(dy.elements())
        })
    }

    /// What lookups in this rank's rows of a vocabulary table work on, for the tokens of a value.
    fn table_shape(&self, tokens: ValueId, table: ValueId) -> TableShape {
        let Shape { rows, cols } = self.shape(tokens);
        TableShape { rows, cols, start: self.vocabulary_start(table) }
    }

    /// The first token id of this rank's rows of a vocabulary table.
    fn vocabulary_start(&self, table: ValueId) -> usize {
        self.program.layout.grid.shard_index(self.place, &[Axis::Y, Axis::X]) * self.value(table).local_rows
    }
}
