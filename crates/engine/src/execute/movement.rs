//! Local movements of data around collectives.

use quadrille_step::Operation;
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
}
