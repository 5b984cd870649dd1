//! The interpreter: one function per operation kind and direction, calling the backend or the communicator. What is
//! counted is taken from the views that the kernels get.

mod activation;
mod attention;
mod cache;
mod communication;
mod embedding;
mod experts;
mod fused;
mod loss;
mod matmul;
mod movement;
mod norm;
mod update;

use std::ops::Range;

use quadrille_spec::{CollectiveKind, Dropout};
use quadrille_step::{DropoutSite, Operation, StorageId, Value, ValueId, Write, kind};
use quadrille_tensor::Shape;

pub(crate) use communication::Flight;
pub(crate) use matmul::shape;
pub use matmul::transpose;

use crate::backend::{ElementMask, Positions};
use crate::streamed::Streamed;
use crate::{Backend, EngineError, RankEngine};

type Done = Result<(), EngineError>;

impl<B: Backend> RankEngine<'_, B> {
    /// Executes one operation.
    pub(crate) fn execute(&mut self, operation: &Operation) -> Done {
        let swept = match operation {
            Operation::Gemm(op) => return self.gemm(op),
            Operation::Router(op) => return self.router(op),
            Operation::Attention(op) => return self.attention(op),
            Operation::AttentionBackward(op) => return self.attention_backward(op),
            Operation::CachedAttention(op) => return self.cached_attention(op),
            Operation::Issue(collective) => return self.issue(*collective),
            Operation::Wait(collective) => return self.wait(*collective),
            Operation::WaitCarried(collective) => return self.wait_carried(*collective),
            Operation::ReduceScalar(op) => return self.reduce_scalar(op),
            Operation::SumSquares(op) => return self.sum_squares(op),
            Operation::Fetch(kind::Fetch { bucket, masters }) => return self.streamed()?.fetch(*bucket, *masters),
            Operation::AwaitFetch(kind::AwaitFetch { bucket }) => return self.end_move(CollectiveKind::Fetch, *bucket),
            Operation::Store(kind::Store { bucket }) => return self.streamed()?.store(*bucket),
            Operation::Adopt(_) => {
                // A stage without parameters has no states.
                self.streamed.iter_mut().for_each(Streamed::adopt);
                return Ok(());
            }
            Operation::AwaitStore(kind::AwaitStore { bucket }) => return self.end_move(CollectiveKind::Store, *bucket),
            Operation::Admit(op) => return self.admit(op),
            // Memory is held by the lifetimes of storages.
            Operation::Hold(_) => return Ok(()),
            Operation::Embed(op) => self.embed(op),
            Operation::EmbedBackward(op) => self.embed_backward(op),
            Operation::Patches(op) => self.patches(op),
            Operation::SquaredError(op) => self.squared_error(op),
            Operation::AddPositions(op) => self.add_positions(op),
            Operation::PositionsBackward(op) => self.positions_backward(op),
            Operation::RowSums(op) => self.row_sums(op),
            Operation::CenteredSquares(op) => self.centered_squares(op),
            Operation::RowSquares(op) => self.row_squares(op),
            Operation::Norm(op) => self.norm(op),
            Operation::NormBackwardSums(op) => self.norm_backward_sums(op),
            Operation::NormBackward(op) => self.norm_backward(op),
            Operation::Route(op) => self.route(op),
            Operation::CountChoices(op) => self.count_choices(op),
            Operation::CountLoads(op) => self.count_loads(op),
            Operation::RouterLoss(op) => self.router_loss(op),
            Operation::RouteBackward(op) => self.route_backward(op),
            Operation::Dispatch(op) => self.dispatch(op),
            Operation::DispatchBackward(op) => self.dispatch_backward(op),
            Operation::Combine(op) => self.combine(op),
            Operation::CombineBackward(op) => self.combine_backward(op),
            Operation::Bias(op) => self.bias(op),
            Operation::BiasBackward(op) => self.bias_backward(op),
            Operation::Scale(op) => self.scale(op),
            Operation::HeadNorm(op) => self.head_norm(op),
            Operation::HeadNormBackward(op) => self.head_norm_backward(op),
            Operation::SplitHeads(op) => self.split_heads(op),
            Operation::JoinHeads(op) => self.join_heads(op),
            Operation::Rotate(op) => self.rotate(op),
            Operation::BiasActivation(op) => self.bias_activation(op),
            Operation::Activate(op) => self.activate(op),
            Operation::ActivationBackward(op) => self.activation_backward(op),
            Operation::Dropout(op) => self.dropout(op),
            Operation::Residual(op) => self.residual(op),
            Operation::CapLogits(op) => self.cap_logits(op),
            Operation::CrossEntropyMax(op) => self.cross_entropy_max(op),
            Operation::CrossEntropySums(op) => self.cross_entropy_sums(op),
            Operation::CrossEntropyGradient(op) => self.cross_entropy_gradient(op),
            Operation::CrossEntropyLoss(op) => self.cross_entropy_loss(op),
            Operation::SquaredErrorLoss(op) => self.squared_error_loss(op),
            Operation::StoreKeysValues(op) => self.store_keys_values(op),
            Operation::CollectRows(op) => self.collect_rows(op),
            Operation::Pack(op) => self.pack(op),
            Operation::Unpack(op) => self.unpack(op),
            Operation::SliceRows(op) => self.slice_rows(op),
            Operation::SliceColumns(op) => self.slice_columns(op),
            Operation::JoinLatent(op) => self.join_latent(op),
            Operation::SplitLatent(op) => self.split_latent(op),
            Operation::PackKeysValues(op) => self.pack_keys_values(op),
            Operation::UnpackKeysValues(op) => self.unpack_keys_values(op),
            Operation::CopyPanel(op) => self.copy_panel(op),
            Operation::StorePanel(op) => self.store_panel(op),
            Operation::Accumulate(op) => self.accumulate(op),
            Operation::Compress(op) => self.compress(op),
            Operation::Expand(op) => self.expand(op),
            Operation::AdamW(op) => self.adamw(op),
            Operation::Restore(op) => self.restore(op),
            Operation::FollowLoads(op) => self.follow_loads(op),
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
        let elements = self.local_elements(id);
        shard * elements..(shard + 1) * elements
    }

    pub(crate) fn read(&self, id: ValueId) -> Result<B::View<'_>, EngineError> {
        self.slots.read(self.storage(id), self.range(id))
    }

    fn read_some(&self, id: Option<ValueId>) -> Result<Option<B::View<'_>>, EngineError> {
        id.map(|id| self.read(id)).transpose()
    }

    /// Local rows and columns.
    fn shape(&self, id: ValueId) -> Shape {
        Shape { rows: self.local_rows(id), cols: self.value(id).local_cols }
    }

    /// Moves the value's elements out, lets `write` fill them beside everything else, and puts them back.
    fn write<R>(
        &mut self,
        id: ValueId,
        write: impl FnOnce(&mut Self, &mut B::ViewMut<'_>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let storage = self.storage(id);
        let range = self.range(id);
        let mut block = self.slots.take(storage)?;
        let result = write(self, &mut block.view_mut(range));
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

    /// The dropout of this step at a site.
    fn step_dropout(&self, site: DropoutSite) -> Dropout {
        Dropout::new(self.seed, &site.to_string(), self.step, self.program.model.dropout)
    }

    /// A dropout over the elements of `value`.
    fn mask(&self, site: DropoutSite, value: ValueId) -> ElementMask {
        let rows = self.rows_of(value);
        let first_col = self.first_col(value);
        let cols = self.value(value).cols;
        ElementMask { dropout: self.step_dropout(site), rows, first_col, cols }
    }

    /// The positions of a value's rows.
    fn positions(&self, value: ValueId) -> Positions<'_> {
        self.pass.of(self.rows_of(value))
    }
}
