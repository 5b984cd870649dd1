//! Local movements of data around collectives.

use quadrille_step::{Operation, ValueId, Write};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn movement(&mut self, operation: &Operation) -> Result<usize, EngineError> {
        let (Operation::Pack { axis, input, output }
        | Operation::Unpack { axis, input, output }
        | Operation::SliceRows { axis, input, output }
        | Operation::SliceColumns { axis, input, output }) = *operation
        else {
            return Ok(0);
        };
        self.write(output, |rank, y| {
            let (parts, part) = (rank.program.layout.grid.size(axis), rank.place.on(axis));
            let x = rank.read(input)?;
            match operation {
                Operation::Pack { .. } => {
                    let (rows, cols) = rank.dims(input);
                    kernels::pack_columns(&rank.pool, rows, cols, parts, x, y);
                }
                Operation::Unpack { .. } => {
                    let (rows, cols) = rank.dims(output);
                    kernels::unpack_columns(&rank.pool, rows, cols, parts, x, y);
                }
                Operation::SliceRows { .. } => {
                    let len = y.len();
                    kernels::copy(&rank.pool, y, &x[part * len..(part + 1) * len]);
                }
                _ => {
                    let (rows, cols) = rank.dims(input);
                    kernels::slice_columns(&rank.pool, rows, cols, part, parts, x, y);
                }
            }
            Ok(y.len())
        })
    }

    pub(super) fn keys_values(&mut self, operation: &Operation) -> Result<usize, EngineError> {
        let (Operation::PackKeysValues { input, output } | Operation::UnpackKeysValues { input, output }) = *operation
        else {
            return Ok(0);
        };
        let packs = matches!(operation, Operation::PackKeysValues { .. });
        self.write(output, |rank, y| {
            let head_dim = rank.program.model.head_dim();
            let (_, cols) = rank.dims(if packs { input } else { output });
            let (heads, x) = (rank.group_heads(), rank.read(input)?);
            let groups = cols / ((heads + 2) * head_dim);
            // Of gradients of weights a rank may have a share of the rows.
            let rows = if packs { x.len() } else { y.len() } / cols;
            if packs {
                kernels::pack_keys_values(&rank.pool, rows, groups, heads, head_dim, x, y);
                Ok(y.len())
            } else {
                kernels::unpack_keys_values(&rank.pool, rows, groups, heads, head_dim, x, y);
                Ok(x.len())
            }
        })
    }

    /// A panel out of its tile or back, on the ranks that hold it.
    pub(super) fn panel(&mut self, operation: &Operation) -> Result<usize, EngineError> {
        let (Operation::CopyPanel { panel, input, output } | Operation::StorePanel { panel, input, output, .. }) =
            *operation
        else {
            return Ok(0);
        };
        let size = self.program.grid().size(panel.axis);
        if panel.holder(size) != self.place.on(panel.axis) {
            return Ok(0);
        }
        let local = panel.local_index(size);
        self.write(output, |rank, y| {
            let x = rank.read(input)?;
            match *operation {
                Operation::StorePanel { write, .. } => {
                    rank.store_panel(panel.of_columns, local, input, output, write, x, y)
                }
                _ if panel.of_columns => {
                    let ((rows, cols), (_, count)) = (rank.dims(input), rank.dims(output));
                    kernels::copy_panel_columns(&rank.pool, rows, cols, local * count, count, x, y);
                }
                _ => kernels::copy(&rank.pool, y, &x[local * y.len()..(local + 1) * y.len()]),
            }
            Ok(x.len().min(y.len()))
        })
    }

    #[allow(clippy::too_many_arguments, reason = "a panel, its tile, and how it is written")]
    fn store_panel(
        &self,
        of_columns: bool,
        local: usize,
        panel: ValueId,
        tile: ValueId,
        write: Write,
        x: &[T],
        y: &mut [T],
    ) {
        if of_columns {
            let ((_, count), (rows, cols)) = (self.dims(panel), self.dims(tile));
            kernels::store_panel_columns(&self.pool, rows, cols, local * count, count, x, y);
            return;
        }
        let y = &mut y[local * x.len()..(local + 1) * x.len()];
        if self.accumulates(write) {
            kernels::add_assign(&self.pool, y, x);
        } else {
            kernels::copy(&self.pool, y, x);
        }
    }
}
