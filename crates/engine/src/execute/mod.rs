//! The interpreter: one function per operation kind, calling kernels or the communicator.

mod backward;
mod communication;
mod forward;
mod matmul;
mod update;

use quadrille_step::{Operation, StorageId, Value, ValueId, Write};
use quadrille_tensor::Buffer;

pub(crate) use communication::Flight;
pub(crate) use matmul::transpose;

use crate::{EngineError, RankEngine, Real};

type Done = Result<(), EngineError>;

impl<T: Real> RankEngine<'_, T> {
    /// Executes one operation.
    pub(crate) fn execute(&mut self, operation: &Operation) -> Done {
        match operation {
            Operation::Gemm { .. } => self.gemm(operation),
            Operation::Issue(collective) => self.issue(*collective),
            Operation::Wait(collective) => self.wait(*collective),
            Operation::ReduceScalar { scalar, axes } => self.reduce_scalar(*scalar, *axes),
            Operation::SumSquares { .. } | Operation::AdamW { .. } | Operation::Accumulate { .. } => {
                self.update(operation)
            }
            Operation::EmbedBackward { .. }
            | Operation::PositionsBackward { .. }
            | Operation::NormBackwardSums { .. }
            | Operation::NormBackward { .. }
            | Operation::BiasBackward { .. }
            | Operation::GeluBackward { .. }
            | Operation::AttentionBackward { .. } => self.backward(operation),
            _ => self.forward(operation),
        }
    }

    pub(crate) fn value(&self, id: ValueId) -> &Value {
        self.program.value(id)
    }

    pub(crate) fn storage(&self, id: ValueId) -> StorageId {
        self.program.value(id).storage
    }

    pub(crate) fn read(&self, id: ValueId) -> Result<&Buffer<T>, EngineError> {
        self.slots.read(self.storage(id))
    }

    /// Local rows and columns.
    pub(crate) fn dims(&self, id: ValueId) -> (usize, usize) {
        (self.value(id).local_rows, self.value(id).local_cols)
    }

    /// Moves the value's buffer out, lets `write` fill it beside everything else, and puts it back.
    pub(crate) fn write<R>(
        &mut self,
        id: ValueId,
        write: impl FnOnce(&mut Self, &mut Buffer<T>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let storage = self.storage(id);
        let mut buffer = self.slots.take(storage)?;
        let result = write(self, &mut buffer);
        self.slots.put(storage, buffer);
        result
    }

    /// Whether a write adds to what is there.
    pub(crate) fn accumulates(&self, write: Write) -> bool {
        match write {
            Write::Overwrite => false,
            Write::Accumulate => true,
            Write::AccumulateMicrobatches => self.microbatch > 0,
        }
    }

    /// Counts elements that an element-wise operation swept over.
    pub(crate) fn count_elements(&mut self, operation: &Operation, elements: usize) {
        *self.elements.entry(operation.name()).or_default() += elements as u64;
    }
}
