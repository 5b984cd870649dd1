//! Local movements of data around collectives.

use quadrille_spec::Axis;
use quadrille_step::{BlockKind, Panel, ValueId, kind};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

type Swept = Result<usize, EngineError>;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn pack(&mut self, op: &kind::Pack) -> Swept {
        let (parts, (rows, cols)) = (self.parts(op.axis), self.dims(op.input));
        self.moves(op.input, op.output, |rank, x, y| kernels::pack_columns(&rank.pool, rows, cols, parts, x, y))
    }

    pub(super) fn unpack(&mut self, op: &kind::Unpack) -> Swept {
        let (parts, (rows, cols)) = (self.parts(op.axis), self.dims(op.output));
        self.moves(op.input, op.output, |rank, x, y| kernels::unpack_columns(&rank.pool, rows, cols, parts, x, y))
    }

    pub(super) fn slice_rows(&mut self, op: &kind::SliceRows) -> Swept {
        let part = self.place.on(op.axis);
        self.moves(op.input, op.output, |rank, x, y| {
            let len = y.len();
            kernels::copy(&rank.pool, y, &x[part * len..(part + 1) * len]);
        })
    }

    pub(super) fn slice_columns(&mut self, op: &kind::SliceColumns) -> Swept {
        let (part, parts, (rows, cols)) = (self.place.on(op.axis), self.parts(op.axis), self.dims(op.input));
        self.moves(op.input, op.output, |rank, x, y| kernels::slice_columns(&rank.pool, rows, cols, part, parts, x, y))
    }

    pub(super) fn pack_keys_values(&mut self, op: &kind::PackKeysValues) -> Swept {
        let (_, cols) = self.dims(op.input);
        self.write(op.output, |rank, y| {
            let (x, [groups, heads, head_dim]) = (rank.read(op.input)?, rank.key_groups(op.block, cols));
            // Of gradients of weights a rank may have a share of the rows.
            kernels::pack_keys_values(&rank.pool, x.len() / cols, groups, heads, head_dim, x, y);
            Ok(y.len())
        })
    }

    pub(super) fn unpack_keys_values(&mut self, op: &kind::UnpackKeysValues) -> Swept {
        let (_, cols) = self.dims(op.output);
        self.write(op.output, |rank, y| {
            let (x, [groups, heads, head_dim]) = (rank.read(op.input)?, rank.key_groups(op.block, cols));
            kernels::unpack_keys_values(&rank.pool, y.len() / cols, groups, heads, head_dim, x, y);
            Ok(x.len())
        })
    }

    /// A panel out of its tile, on the ranks that hold it.
    pub(super) fn copy_panel(&mut self, op: &kind::CopyPanel) -> Swept {
        let kind::CopyPanel { panel, input, output } = *op;
        let Some(local) = self.held(panel) else { return Ok(0) };
        self.moves(input, output, |rank, x, y| {
            if panel.of_columns {
                let ((rows, cols), (_, count)) = (rank.dims(input), rank.dims(output));
                kernels::copy_panel_columns(&rank.pool, rows, cols, local * count, count, x, y);
            } else {
                kernels::copy(&rank.pool, y, &x[local * y.len()..(local + 1) * y.len()]);
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
                let ((_, count), (rows, cols)) = (rank.dims(input), rank.dims(output));
                kernels::store_panel_columns(&rank.pool, rows, cols, local * count, count, x, y);
                return Ok(x.len());
            }
            let y = &mut y[local * x.len()..(local + 1) * x.len()];
            if rank.accumulates(write) {
                kernels::add_assign(&rank.pool, y, x);
            } else {
                kernels::copy(&rank.pool, y, x);
            }
            Ok(x.len())
        })
    }

    /// Fills `output` from `input`; counts what is written.
    fn moves(&mut self, input: ValueId, output: ValueId, copy: impl FnOnce(&Self, &[T], &mut [T])) -> Swept {
        self.write(output, |rank, y| {
            copy(rank, rank.read(input)?, y);
            Ok(y.len())
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

    /// Of so many columns of a block's queries, keys and values: keys, queries of each, and columns of a head.
    pub(super) fn key_groups(&self, block: BlockKind, cols: usize) -> [usize; 3] {
        let (heads, head_dim) = (self.group_heads(block), block.of(&self.program.model).attention.head_dim);
        [cols / ((heads + 2) * head_dim), heads, head_dim]
    }
}
