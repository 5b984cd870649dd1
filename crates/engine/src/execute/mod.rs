//! The interpreter: one function per operation kind and direction, calling kernels or the communicator. What is
//! counted is taken from the slices that the kernels get.

mod activation;
mod attention;
mod cache;
mod communication;
mod embedding;
mod loss;
mod matmul;
mod movement;
mod norm;
mod update;

use std::ops::Range;

use quadrille_spec::Dropout;
use quadrille_step::{Operation, StorageId, Value, ValueId, Write};

pub(crate) use communication::Flight;
pub use matmul::transpose;

use crate::{EngineError, RankEngine, Real};

type Done = Result<(), EngineError>;

impl<T: Real> RankEngine<'_, T> {
    /// Executes one operation.
    pub(crate) fn execute(&mut self, operation: &Operation) -> Done {
        let swept = match operation {
            Operation::Gemm { .. } => return self.gemm(operation),
            Operation::Attention { .. } => return self.attention(operation),
            Operation::AttentionBackward { .. } => return self.attention_backward(operation),
            Operation::CachedAttention { qkv, cache, output } => {
                return self.cached_attention(*qkv, *cache, *output);
            }
            Operation::Issue(collective) => return self.issue(*collective),
            Operation::Wait(collective) => return self.wait(*collective),
            Operation::WaitCarried(collective) => return self.wait_carried(*collective),
            Operation::ReduceScalar { scalar, axes } => return self.reduce_scalar(*scalar, *axes),
            Operation::SumSquares { parameter, gradient } => return self.sum_squares(*parameter, *gradient),
            Operation::Embed { table, output } => self.embed(*table, *output),
            Operation::EmbedBackward { gradient, output, write } => self.embed_backward(*gradient, *output, *write),
            Operation::Patches { output } => self.patches(*output),
            Operation::SquaredError { output, .. } => self.squared_error(*output),
            Operation::AddPositions { positions, output, .. } => self.add_positions(*positions, *output),
            Operation::PositionsBackward { gradient, output, write } => {
                self.positions_backward(*gradient, *output, *write)
            }
            Operation::RowSums { .. } | Operation::CenteredSquares { .. } | Operation::RowSquares { .. } => {
                self.norm_statistics(operation)
            }
            Operation::Norm { .. } => self.norm(operation),
            Operation::NormBackwardSums { .. } => self.norm_backward_sums(operation),
            Operation::NormBackward { .. } => self.norm_backward(operation),
            Operation::Bias { bias, output, .. } => self.bias(*bias, *output),
            Operation::BiasBackward { gradient, output, write } => self.bias_backward(*gradient, *output, *write),
            Operation::Rotate { back, output, .. } => self.rotate(*back, *output),
            Operation::BiasActivation { .. } => self.bias_activation(operation),
            Operation::Activation { function, input, output } => self.activation(*function, *input, *output),
            Operation::ActivationBackward { .. } => self.activation_backward(operation),
            Operation::Dropout { purpose, input, output } => self.dropout(purpose, *input, *output),
            Operation::Residual { .. } => self.residual(operation),
            Operation::CrossEntropyMax { .. }
            | Operation::CrossEntropySums { .. }
            | Operation::CrossEntropyGradient { .. }
            | Operation::CrossEntropyLoss { .. } => self.cross_entropy(operation),
            Operation::SquaredErrorLoss { predictions } => self.squared_error_loss(*predictions),
            Operation::StoreKeysValues { input, output } => self.store_keys_values(*input, *output),
            Operation::CollectRows { wanted, input, output } => self.collect_rows(*wanted, *input, *output),
            Operation::Pack { .. }
            | Operation::Unpack { .. }
            | Operation::SliceRows { .. }
            | Operation::SliceColumns { .. } => self.movement(operation),
            Operation::PackKeysValues { .. } | Operation::UnpackKeysValues { .. } => self.keys_values(operation),
            Operation::CopyPanel { .. } | Operation::StorePanel { .. } => self.panel(operation),
            Operation::Accumulate { input, output, write } => self.accumulate(*input, *output, *write),
            Operation::AdamW { parameter, value, gradient } => self.adamw(*parameter, *value, *gradient),
        }?;
        *self.elements.entry(operation.name().into()).or_default() += swept as u64;
        Ok(())
    }

    fn value(&self, id: ValueId) -> &Value {
        self.program.value(id)
    }

    fn storage(&self, id: ValueId) -> StorageId {
        self.program.value(id).storage
    }

    /// Where a value's elements begin in its storage: at the beginning, but for shards that lie side by side.
    fn range(&self, id: ValueId) -> Range<usize> {
        let value = self.value(id);
        let inside = value.sharding.flat.iter().filter(|axis| value.inside.contains(**axis));
        let grid = self.program.grid();
        let shard = inside.fold(0, |index, axis| index * grid.size(*axis) + self.place.on(*axis));
        let first = shard * value.local_elements;
        first..first + value.local_elements
    }

    pub(crate) fn read(&self, id: ValueId) -> Result<&[T], EngineError> {
        Ok(&self.slots.read(self.storage(id))?[self.range(id)])
    }

    fn read_some(&self, id: Option<ValueId>) -> Result<Option<&[T]>, EngineError> {
        id.map(|id| self.read(id)).transpose()
    }

    /// Local rows and columns.
    fn dims(&self, id: ValueId) -> (usize, usize) {
        (self.value(id).local_rows, self.value(id).local_cols)
    }

    /// Moves the value's elements out, lets `write` fill them beside everything else, and puts them back.
    fn write<R>(
        &mut self,
        id: ValueId,
        write: impl FnOnce(&mut Self, &mut [T]) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let (storage, range) = (self.storage(id), self.range(id));
        let mut block = self.slots.take(storage)?;
        let result = write(self, &mut block[range]);
        self.slots.put(storage, block);
        result
    }

    /// Whether a write adds to what is there.
    fn accumulates(&self, write: Write) -> bool {
        match write {
            Write::Overwrite => false,
            Write::Accumulate => true,
            Write::AccumulateMicrobatches => self.microbatch > 0,
        }
    }

    /// The dropout of this step for `purpose`.
    fn step_dropout(&self, purpose: &str) -> Dropout {
        Dropout::new(self.seed, purpose, self.step, self.program.model.dropout)
    }

    /// Scale and mask of a dropout over the elements of `value`, by local row and column.
    fn mask(&self, purpose: &str, value: ValueId) -> (T, impl Fn(usize, usize) -> bool + Sync + use<T>) {
        let mask = self.step_dropout(purpose);
        let (rows, first_col) = (self.rows_of(value), self.first_col(value));
        let cols = self.value(value).cols;
        let keep = move |row: usize, col: usize| mask.keeps((rows.logical(row) * cols + first_col + col) as u64);
        (T::from_f64(mask.scale), keep)
    }
}
