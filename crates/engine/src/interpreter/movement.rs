//! Local movements of data around collectives.

use quadrille_step::{ValueId, kind};
use quadrille_tensor::{PanelShape, Shape};

use super::{Done, Interpreter};
use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError};

type Swept = Result<usize, EngineError>;

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn pack(&mut self, op: &kind::Pack) -> Swept {
        let parts = self.rank.axis_size(op.axis);
        let shape = self.step.shape(op.input);
        self.moves(op.input, op.output, |this, x, y| this.backend.pack_columns(shape, parts, x, y))
    }

    pub(super) fn unpack(&mut self, op: &kind::Unpack) -> Swept {
        let parts = self.rank.axis_size(op.axis);
        let shape = self.step.shape(op.output);
        self.moves(op.input, op.output, |this, x, y| this.backend.unpack_columns(shape, parts, x, y))
    }

    pub(super) fn slice_rows(&mut self, op: &kind::SliceRows) -> Swept {
        let part = self.rank.place.on(op.axis);
        let parts = self.rank.axis_size(op.axis);
        let cols = self.rank.value(op.input).local_cols;
        self.moves(op.input, op.output, |this, x, y| {
            // Queues of experts may have any number of rows: parts differ by one at most.
            let first = part * (x.elements() / cols) / parts * cols;
            this.backend.copy(y, x.part(first..first + y.elements()))
        })
    }

    pub(super) fn slice_columns(&mut self, op: &kind::SliceColumns) -> Swept {
        let part = self.rank.place.on(op.axis);
        let parts = self.rank.axis_size(op.axis);
        let shape = self.step.shape(op.input);
        self.moves(op.input, op.output, |this, x, y| this.backend.slice_columns(shape, part, parts, x, y))
    }

    pub(super) fn pack_keys_values(&mut self, op: &kind::PackKeysValues) -> Swept {
        let cols = self.step.shape(op.input).cols;
        self.write(op.output, |this, y| {
            let x = this.read(op.input)?;
            // Of gradients of weights a rank may have a share of the rows.
            this.backend.pack_keys_values(this.rank.groups(op.block, x.elements() / cols, cols), x, y)?;
            Ok(y.elements())
        })
    }

    pub(super) fn unpack_keys_values(&mut self, op: &kind::UnpackKeysValues) -> Swept {
        let cols = self.step.shape(op.output).cols;
        self.write(op.output, |this, y| {
            let x = this.read(op.input)?;
            this.backend.unpack_keys_values(this.rank.groups(op.block, y.elements() / cols, cols), x, y)?;
            Ok(x.elements())
        })
    }

    pub(super) fn split_heads(&mut self, op: &kind::SplitHeads) -> Swept {
        self.write(op.queries, |this, queries| {
            this.write(op.keys, |this, keys| {
                let Shape { rows, cols } = this.step.shape(op.input);
                this.backend.split_heads(
                    this.rank.groups(op.block, rows, cols),
                    this.read(op.input)?,
                    queries,
                    keys,
                )?;
                Ok(queries.elements() + keys.elements())
            })
        })
    }

    pub(super) fn join_heads(&mut self, op: &kind::JoinHeads) -> Swept {
        self.write(op.output, |this, qkv| {
            let Shape { rows, cols } = this.step.shape(op.output);
            let queries = this.read(op.queries)?;
            let keys = this.read(op.keys)?;
            let beside = this.read_some(op.beside)?;
            this.backend.join_heads(this.rank.groups(op.block, rows, cols), queries, keys, beside, qkv)?;
            Ok(if beside.is_some() { qkv.elements() } else { queries.elements() + keys.elements() })
        })
    }

    /// A panel out of its tile, on the ranks that hold it.
    pub(super) fn copy_panel(&mut self, op: &kind::CopyPanel) -> Swept {
        let kind::CopyPanel { panel, input, output } = *op;
        let Some(local) = self.rank.local_panel(panel) else { return Ok(0) };
        self.moves(input, output, |this, x, y| {
            if panel.of_columns {
                let Shape { rows, cols } = this.step.shape(input);
                let count = this.step.shape(output).cols;
                this.backend.copy_panel_columns(PanelShape { rows, cols, first: local * count, count }, x, y)
            } else {
                let len = y.elements();
                this.backend.copy(y, x.part(local * len..(local + 1) * len))
            }
        })
    }

    /// A panel back into its tile, on the ranks that hold it.
    pub(super) fn store_panel(&mut self, op: &kind::StorePanel) -> Swept {
        let kind::StorePanel { panel, input, output, write } = *op;
        let Some(local) = self.rank.local_panel(panel) else { return Ok(0) };
        self.write(output, |this, y| {
            let x = this.read(input)?;
            if panel.of_columns {
                let Shape { rows, cols } = this.step.shape(output);
                let count = this.step.shape(input).cols;
                this.backend.store_panel_columns(PanelShape { rows, cols, first: local * count, count }, x, y)?;
                return Ok(x.elements());
            }
            let y = &mut B::part(y, local * x.elements()..(local + 1) * x.elements());
            if this.step.accumulates(write) {
                this.backend.add_assign(y, x)?;
            } else {
                this.backend.copy(y, x)?;
            }
            Ok(x.elements())
        })
    }

    /// Fills `output` from `input`; counts what is written.
    fn moves(
        &mut self,
        input: ValueId,
        output: ValueId,
        copy: impl FnOnce(&Self, B::View<'_>, &mut B::ViewMut<'_>) -> Done,
    ) -> Swept {
        self.write(output, |this, y| {
            copy(this, this.read(input)?, y)?;
            Ok(y.elements())
        })
    }
}
