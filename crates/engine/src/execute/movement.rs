//! Local movements of data around collectives.

use quadrille_spec::{Attention, Axis};
use quadrille_step::{BlockKind, Panel, ValueId, kind};
use quadrille_tensor::{GroupShape, PanelShape, Shape};

use super::Done;
use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError, RankEngine};

type Swept = Result<usize, EngineError>;

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn pack(&mut self, op: &kind::Pack) -> Swept {
        let parts = self.parts(op.axis);
        let shape = self.shape(op.input);
        self.moves(op.input, op.output, |rank, x, y| rank.backend.pack_columns(shape, parts, x, y))
    }

    pub(super) fn unpack(&mut self, op: &kind::Unpack) -> Swept {
        let parts = self.parts(op.axis);
        let shape = self.shape(op.output);
        self.moves(op.input, op.output, |rank, x, y| rank.backend.unpack_columns(shape, parts, x, y))
    }

    pub(super) fn slice_rows(&mut self, op: &kind::SliceRows) -> Swept {
        let part = self.place.on(op.axis);
        let parts = self.parts(op.axis);
        let cols = self.value(op.input).local_cols;
        self.moves(op.input, op.output, |rank, x, y| {
            // Queues of experts may have any number of rows: parts differ by one at most.
            let first = part * (x.elements() / cols) / parts * cols;
            rank.backend.copy(y, x.part(first..first + y.elements()))
        })
    }

    pub(super) fn slice_columns(&mut self, op: &kind::SliceColumns) -> Swept {
        let part = self.place.on(op.axis);
        let parts = self.parts(op.axis);
        let shape = self.shape(op.input);
        self.moves(op.input, op.output, |rank, x, y| rank.backend.slice_columns(shape, part, parts, x, y))
    }

    pub(super) fn pack_keys_values(&mut self, op: &kind::PackKeysValues) -> Swept {
        let cols = self.shape(op.input).cols;
        self.write(op.output, |rank, y| {
            let x = rank.read(op.input)?;
            // Of gradients of weights a rank may have a share of the rows.
            rank.backend.pack_keys_values(rank.groups(op.block, x.elements() / cols, cols), x, y)?;
            Ok(y.elements())
        })
    }

    pub(super) fn unpack_keys_values(&mut self, op: &kind::UnpackKeysValues) -> Swept {
        let cols = self.shape(op.output).cols;
        self.write(op.output, |rank, y| {
            let x = rank.read(op.input)?;
            rank.backend.unpack_keys_values(rank.groups(op.block, y.elements() / cols, cols), x, y)?;
            Ok(x.elements())
        })
    }

    pub(super) fn split_heads(&mut self, op: &kind::SplitHeads) -> Swept {
        self.write(op.queries, |rank, queries| {
            rank.write(op.keys, |rank, keys| {
                let Shape { rows, cols } = rank.shape(op.input);
                rank.backend.split_heads(rank.groups(op.block, rows, cols), rank.read(op.input)?, queries, keys)?;
                Ok(queries.elements() + keys.elements())
            })
        })
    }

    pub(super) fn join_heads(&mut self, op: &kind::JoinHeads) -> Swept {
        self.write(op.output, |rank, qkv| {
            let Shape { rows, cols } = rank.shape(op.output);
            let queries = rank.read(op.queries)?;
            let keys = rank.read(op.keys)?;
            let beside = rank.read_some(op.beside)?;
            rank.backend.join_heads(rank.groups(op.block, rows, cols), queries, keys, beside, qkv)?;
            Ok(if beside.is_some() { qkv.elements() } else { queries.elements() + keys.elements() })
        })
    }

    /// A panel out of its tile, on the ranks that hold it.
    pub(super) fn copy_panel(&mut self, op: &kind::CopyPanel) -> Swept {
        let kind::CopyPanel { panel, input, output } = *op;
        let Some(local) = self.held(panel) else { return Ok(0) };
        self.moves(input, output, |rank, x, y| {
            if panel.of_columns {
                let Shape { rows, cols } = rank.shape(input);
                let count = rank.shape(output).cols;
                rank.backend.copy_panel_columns(PanelShape { rows, cols, first: local * count, count }, x, y)
            } else {
                let len = y.elements();
                rank.backend.copy(y, x.part(local * len..(local + 1) * len))
            }
        })
    }

    /// A panel back into its tile, on the ranks that hold it.
    pub(super) fn store_panel(&mut self, op: &kind::StorePanel) -> Swept {
        let kind::StorePanel { panel, input, output, write } = *op;
        let Some(local) = self.held(panel) else { return Ok(0) };
        self.write(output, |rank, y| {
            let x = rank.read(input)?;
            if panel.of_columns {
                let Shape { rows, cols } = rank.shape(output);
                let count = rank.shape(input).cols;
                rank.backend.store_panel_columns(PanelShape { rows, cols, first: local * count, count }, x, y)?;
                return Ok(x.elements());
            }
            let y = &mut B::part(y, local * x.elements()..(local + 1) * x.elements());
            if rank.accumulates(write) {
                rank.backend.add_assign(y, x)?;
            } else {
                rank.backend.copy(y, x)?;
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
        self.write(output, |rank, y| {
            copy(rank, rank.read(input)?, y)?;
            Ok(y.elements())
        })
    }

    fn parts(&self, axis: Axis) -> usize {
        self.program.grid().size(axis)
    }

    /// The number of a panel among those of this rank, if it holds it.
    fn held(&self, panel: Panel) -> Option<usize> {
        let size = self.parts(panel.axis);
        (panel.holder(size) == self.place.on(panel.axis)).then(|| panel.local_index(size))
    }

    /// A block's queries, keys and values in so many rows and columns.
    pub(super) fn groups(&self, block: BlockKind, rows: usize, cols: usize) -> GroupShape {
        let Attention { head_dim, value_dim, .. } = block.of(&self.program.model).attention;
        let group = GroupShape { rows, groups: 1, heads: self.group_heads(block), head_dim, value_dim };
        GroupShape { groups: cols / group.group(), ..group }
    }
}
