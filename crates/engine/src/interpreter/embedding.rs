//! Token and position tables, and patches.

use quadrille_spec::Axis;
use quadrille_step::{ValueId, kind};
use quadrille_tensor::{Shape, TableShape};

use super::Interpreter;
use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError};

type Swept = Result<usize, EngineError>;

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn embed(&mut self, op: &kind::Embed) -> Swept {
        let kind::Embed { table, output } = *op;
        self.write(output, |this, y| {
            let shape = this.table_shape(output, table);
            let rows = this.rank.sample_rows(output);
            this.backend.embed_forward(shape, &this.step.samples.loaded, rows, this.read(table)?, y)?;
            Ok(y.elements())
        })
    }

    pub(super) fn embed_backward(&mut self, op: &kind::EmbedBackward) -> Swept {
        let kind::EmbedBackward { gradient, output, write } = *op;
        self.write(output, |this, dtable| {
            let shape = this.table_shape(gradient, output);
            let rows = this.rank.sample_rows(gradient);
            let add = this.step.accumulates(write);
            let dy = this.read(gradient)?;
            this.backend.embed_backward(shape, &this.step.samples.loaded, rows, dy, dtable, add)?;
            Ok(dy.elements())
        })
    }

    pub(super) fn patches(&mut self, op: &kind::Patches) -> Swept {
        let output = op.output;
        self.write(output, |this, y| {
            this.backend.patches(&this.step.samples.loaded, this.rank.sample_numbers(output), y)?;
            Ok(y.elements())
        })
    }

    pub(super) fn add_positions(&mut self, op: &kind::AddPositions) -> Swept {
        let kind::AddPositions { positions, output, .. } = *op;
        self.write(output, |this, x| {
            this.backend.add_positions(
                this.step.shape(output),
                x,
                this.read(positions)?,
                this.step.positions(output),
            )?;
            Ok(x.elements())
        })
    }

    pub(super) fn positions_backward(&mut self, op: &kind::PositionsBackward) -> Swept {
        let kind::PositionsBackward { gradient, output, write } = *op;
        self.write(output, |this, dpositions| {
            let shape = this.step.shape(gradient);
            let at = this.step.positions(gradient);
            let dy = this.read(gradient)?;
            let add = this.step.accumulates(write);
            this.backend.positions_backward(shape, dy, dpositions, at, add)?;
            Ok(dy.elements())
        })
    }

    /// What lookups in this rank's rows of a vocabulary table work on, for the tokens of a value.
    fn table_shape(&self, tokens: ValueId, table: ValueId) -> TableShape {
        let Shape { rows, cols } = self.step.shape(tokens);
        TableShape { rows, cols, start: self.vocabulary_start(table) }
    }

    /// The first token id of this rank's rows of a vocabulary table.
    fn vocabulary_start(&self, table: ValueId) -> usize {
        self.rank.program.layout.grid.shard_index(self.rank.place, &[Axis::Y, Axis::X])
            * self.rank.value(table).local_rows
    }
}
