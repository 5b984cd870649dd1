//! The interpreter: executes operations of a rank's program over the table of storages, a function per operation kind, which
//! calls the backend or the communicator. Counts are taken from the views that kernels get.

mod activation;
mod attention;
mod collectives;
mod embedding;
mod experts;
mod fused_runs;
pub(crate) mod fusion;
mod kv_cache;
mod loss;
pub(crate) mod matmul_choices;
mod movement;
mod norm;
mod products;
mod section;
mod update;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use quadrille_comm::RankContext;
use quadrille_spec::{Attention, CollectiveKind, MemoryClass, Rotary};
use quadrille_step::{Layer, Operation, Purpose, StepProgram, StorageId, ValueId, kind};

use crate::communicators::{Communicators, label};
use crate::observe::Observers;
use crate::optimizer::Optimizer;
use crate::rank_program::RankProgram;
use crate::state::kept::KeptElements;
use crate::state::step_state::StepState;
use crate::state::storages::Storages;
use crate::{Backend, EngineError, Hyper, MatmulChoices};
use collectives::Flight;
use fusion::FusionState;

pub(crate) use products::shape;
pub use products::transpose;

type Done = Result<(), EngineError>;

/// Executes a rank's program.
pub(crate) struct Interpreter<'a, B: Backend> {
    pub rank: RankProgram<'a>,
    /// Memory and kernels; engines that share storages share it.
    pub backend: Rc<B>,
    pub communicators: Communicators<'a>,
    /// Values by storage: weights, gradients, activations.
    pub storages: Storages<'a, B>,
    pub kept: KeptElements<'a, B>,
    pub step: StepState<'a, B>,
    pub optimizer: Optimizer<'a, B>,
    pub observers: Observers,
    pub products: MatmulChoices,
    /// By kind of block, the angles of the positions of this rank's tokens, if attention rotates.
    angles: Vec<B::Angles>,
    /// Collectives in flight, by the storage of their output.
    flights: BTreeMap<StorageId, Flight<B>>,
    fusion: FusionState,
}

/// Constants of a rank's run.
pub(crate) struct RunConstants<'f> {
    pub hyper: Hyper,
    /// Keys initial values and dropout.
    pub seed: u64,
    /// Folder of offloaded states; `None`: they lie in the host's memory.
    pub states: Option<&'f Path>,
}

impl<'a, B: Backend> Interpreter<'a, B> {
    /// Allocates everything that a rank's program needs, except the storages `lent` by another interpreter.
    ///
    /// # Errors
    /// The job was stopped; too little memory.
    pub fn new(
        program: &'a StepProgram,
        context: &'a RankContext,
        backend: Rc<B>,
        constants: &RunConstants<'_>,
        lent: &[StorageId],
    ) -> Result<Self, EngineError> {
        let RunConstants { hyper, seed, states } = *constants;
        let number = context.rank();
        let rank = RankProgram { program: program.of_rank(number), place: program.layout.grid.coordinate(number) };
        context.enter(label(Layer::Step), "allocate")?;
        let communicators = Communicators::new(program, context)?;
        let mut storages = Storages::new(backend.clone(), rank.program, lent)?;
        let optimizer = Optimizer::new(rank, backend.clone(), hyper, states, number)?;
        optimizer.count_memory(&mut storages);
        storages.count_state(MemoryClass::Optimizer, rank.program.index_bytes());
        Ok(Self {
            rank,
            communicators,
            storages,
            kept: KeptElements::new(rank, backend.clone()),
            step: StepState::new(rank, seed),
            optimizer,
            observers: Observers::new(rank.program),
            products: MatmulChoices::default(),
            angles: angles(rank, &*backend)?,
            flights: BTreeMap::new(),
            fusion: FusionState::default(),
            backend,
        })
    }

    /// Executes one operation.
    pub fn execute(&mut self, operation: &Operation) -> Done {
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
            Operation::Fetch(kind::Fetch { bucket, masters }) => {
                return self.optimizer.streamed()?.fetch(*bucket, *masters);
            }
            Operation::AwaitFetch(kind::AwaitFetch { bucket }) => {
                return self.optimizer.streamed()?.wait(CollectiveKind::Fetch, *bucket);
            }
            Operation::Store(kind::Store { bucket }) => return self.optimizer.streamed()?.store(*bucket),
            Operation::Adopt(_) => {
                self.optimizer.adopt();
                return Ok(());
            }
            Operation::AwaitStore(kind::AwaitStore { bucket }) => {
                return self.optimizer.streamed()?.wait(CollectiveKind::Store, *bucket);
            }
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
        self.observers.ledger.add_elements(operation.name(), swept);
        Ok(())
    }

    /// Elements of a value, to be read.
    pub fn read(&self, id: ValueId) -> Result<B::View<'_>, EngineError> {
        self.storages.read(self.rank.storage(id), self.rank.range(id, self.step.local_elements(id)))
    }

    fn read_some(&self, id: Option<ValueId>) -> Result<Option<B::View<'_>>, EngineError> {
        id.map(|id| self.read(id)).transpose()
    }

    /// Moves a value's elements out, lets `write` fill them while it reads others, and puts them back.
    fn write<R>(
        &mut self,
        id: ValueId,
        write: impl FnOnce(&mut Self, &mut B::ViewMut<'_>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let storage = self.rank.storage(id);
        let range = self.rank.range(id, self.step.local_elements(id));
        let mut block = self.storages.take(storage)?;
        let result = write(self, &mut block.view_mut(range));
        self.storages.put(storage, block);
        result
    }

    /// Waits for everything that the next step would wait for.
    pub fn settle(&mut self) -> Done {
        while let Some((storage, flight)) = self.flights.pop_first() {
            self.land(storage, storage, flight)?;
        }
        Ok(())
    }
}

/// By kind of block, the angles of the tokens of a sequence that the rank has, in generation those of all positions in the
/// cache; empty where queries and keys do not rotate.
fn angles<B: Backend>(rank: RankProgram<'_>, backend: &B) -> Result<Vec<B::Angles>, EngineError> {
    let program = rank.program;
    let seq_len = program.layout.seq_len;
    let part = rank.context_part();
    let frequencies = |rotary: Rotary| rotary.frequencies().collect::<Vec<_>>();
    let table = |attention: &Attention| match (attention.rotary, program.purpose) {
        (None, _) => backend.angles(0, &[], 0..0),
        (Some(rotary), Purpose::Generation(generation)) => {
            backend.angles(attention.head_dim, &frequencies(rotary), 0..generation.capacity)
        }
        (Some(rotary), _) => {
            let positions = (0..part.tokens(seq_len)).map(|token| part.position(token, seq_len));
            backend.angles(attention.head_dim, &frequencies(rotary), positions)
        }
    };
    program.model.blocks.kinds().iter().map(|block| table(&block.attention)).collect()
}
