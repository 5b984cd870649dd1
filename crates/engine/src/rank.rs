//! One rank of a training job: its memory, its place in the grid, and one optimizer step.

use std::collections::BTreeMap;
use std::time::Instant;

use quadrille_comm::{Group, Label, RankContext};
use quadrille_spec::{Axis, AxisSet, Coordinate, FlopsLedger, MemoryClass, RankLedger};
use quadrille_step::{Layer, Op, Parameter, Section, StepProgram, StorageId, ValueId, declared_axes};
use quadrille_tensor::{Buffer, Pool};

use crate::execute::Flight;
use crate::initial::fill_shard;
use crate::slots::Slots;
use crate::{EngineError, Hyper, InitialValues, MatmulChoices, Real, Shard, ledger};

/// Gives the tokens and targets of `sequences` sequences from `first` on of a step's global batch, by logical index:
/// (step, first, tokens, targets); the slices hold whole sequences.
pub type BatchSource<'a> = dyn Fn(u64, usize, &mut [u32], &mut [u32]) -> Result<(), EngineError> + Sync + 'a;

/// What a step gave, equal on every rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOutcome {
    /// Mean loss over all target tokens of the global batch, in nats.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// The step's learning rate.
    pub learning_rate: f64,
}

/// One rank's state of a training job.
pub struct RankEngine<'a, T> {
    pub(crate) program: &'a StepProgram,
    pub(crate) context: &'a RankContext,
    pub(crate) pool: Pool,
    pub(crate) place: Coordinate,
    pub(crate) slots: Slots<'a, T>,
    /// Running means of gradients and squared gradients, by parameter.
    pub(crate) moments: Vec<[Buffer<T>; 2]>,
    pub(crate) groups: BTreeMap<AxisSet, Group>,
    /// Collectives under way, by the storage of their output.
    pub(crate) flights: BTreeMap<StorageId, Flight<T>>,
    pub(crate) matmuls: MatmulChoices,
    pub(crate) scratch: Buffer<T>,
    pub(crate) hyper: Hyper,
    pub(crate) seed: u64,
    pub(crate) step: u64,
    pub(crate) microbatch: usize,
    pub(crate) tokens: Vec<u32>,
    pub(crate) targets: Vec<u32>,
    pub(crate) loss_sum: f64,
    pub(crate) norm_squared: f64,
    pub(crate) flops: FlopsLedger,
    /// Elements swept over by element-wise operations.
    pub(crate) elements: BTreeMap<&'static str, u64>,
    /// Seconds per operation kind since [`RankEngine::take_breakdown`].
    breakdown: BTreeMap<&'static str, f64>,
}

impl<'a, T: Real> RankEngine<'a, T> {
    /// Allocates everything and fills in the initial values.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn new(
        program: &'a StepProgram,
        context: &'a RankContext,
        threads: usize,
        hyper: Hyper,
        seed: u64,
        initial: InitialValues,
    ) -> Result<Self, EngineError> {
        let grid = &program.layout.grid;
        let (rank, place) = (context.rank(), grid.coordinate(context.rank()));
        context.enter(Label::new("step"), "allocate")?;
        let mut groups = BTreeMap::new();
        for axes in declared_axes(program) {
            groups.insert(axes, context.group(&axes.key(), &grid.group(rank, axes))?);
        }
        let mut slots = Slots::new(program);
        let shard_len = |value: ValueId| program.value(value).local_elements;
        let moments: Vec<[Buffer<T>; 2]> = program
            .parameters
            .iter()
            .map(|parameter| [(); 2].map(|()| Buffer::new(shard_len(parameter.value))))
            .collect();
        let bytes = moments.iter().flatten().map(|buffer| buffer.bytes() as u64).sum();
        slots.count_state(MemoryClass::Optimizer, bytes);

        let pool = Pool::new(threads);
        for parameter in &program.parameters {
            let value = program.value(parameter.value);
            let mut buffer = slots.take(value.storage)?;
            fill_shard(&pool, parameter, Shard::of(value, grid, place), seed, initial, &mut buffer);
            slots.put(value.storage, buffer);
        }
        let sequences = program.layout.microbatch / grid.size(Axis::Z);
        let rows = sequences * program.layout.seq_len;
        Ok(Self {
            program,
            context,
            pool,
            place,
            slots,
            moments,
            groups,
            flights: BTreeMap::new(),
            matmuls: MatmulChoices::default(),
            scratch: Buffer::default(),
            hyper,
            seed,
            step: 0,
            microbatch: 0,
            tokens: vec![0; rows],
            targets: vec![0; rows],
            loss_sum: 0.0,
            norm_squared: 0.0,
            flops: FlopsLedger::default(),
            elements: BTreeMap::new(),
            breakdown: BTreeMap::new(),
        })
    }

    /// Runs one optimizer step: every microbatch forward and backward, then reduction and update.
    ///
    /// # Errors
    /// The job was stopped, or data is missing.
    pub fn step(&mut self, batch: &BatchSource) -> Result<StepOutcome, EngineError> {
        let program = self.program;
        self.step += 1;
        (self.loss_sum, self.norm_squared) = (0.0, 0.0);
        self.flops = FlopsLedger::default();
        self.elements.clear();
        for microbatch in 0..program.layout.microbatches() {
            self.microbatch = microbatch;
            self.context.enter(Label::new("embedding"), "read tokens")?;
            batch(self.step, self.first_sequence(), &mut self.tokens, &mut self.targets)?;
            self.check_tokens()?;
            self.run(&program.pass)?;
        }
        self.run(&program.update)?;
        self.context.enter(Label::new("step"), "finish")?;
        Ok(StepOutcome {
            loss: self.loss_sum / program.layout.tokens_per_step() as f64,
            gradient_norm: self.norm_squared.sqrt(),
            learning_rate: crate::schedule(&self.hyper, self.step),
        })
    }

    /// The ledger counted since the last call; memory peaks are those of the whole run.
    pub fn take_ledger(&mut self) -> RankLedger {
        let transfers = self.context.take_ledger();
        let memory = self.slots.memory().clone();
        ledger::counted(self.program, self.context.rank(), &transfers, self.flops, self.elements.clone(), memory)
    }

    /// Seconds per operation kind since the last call; `wait` is communication that computation did not hide.
    pub fn take_breakdown(&mut self) -> BTreeMap<&'static str, f64> {
        std::mem::take(&mut self.breakdown)
    }

    /// This rank's shards of all parameters in f64, in the program's order.
    ///
    /// # Errors
    /// A shard is in flight: never between steps.
    pub fn weights(&self) -> Result<Vec<Vec<f64>>, EngineError> {
        self.shards(|parameter| parameter.value)
    }

    /// This rank's shards of all reduced gradients, before clipping, in f64, in the program's order.
    ///
    /// # Errors
    /// A shard is in flight: never between steps.
    pub fn gradients(&self) -> Result<Vec<Vec<f64>>, EngineError> {
        self.shards(|parameter| parameter.gradient)
    }

    fn shards(&self, which: impl Fn(&Parameter) -> ValueId) -> Result<Vec<Vec<f64>>, EngineError> {
        let values = self.program.parameters.iter().map(which);
        values.map(|value| Ok(self.read(value)?.iter().map(|element| element.to_f64()).collect())).collect()
    }

    /// A token outside the vocabulary would be a row of zeros and no target: plausible numbers, all wrong.
    fn check_tokens(&self) -> Result<(), EngineError> {
        let vocab = self.program.model.vocab;
        match self.tokens.iter().chain(&self.targets).find(|token| **token as usize >= vocab) {
            Some(token) => Err(EngineError::UnknownToken { token: *token, vocab }),
            None => Ok(()),
        }
    }

    /// Executes a section, taking storages before their first use and giving them back after their last.
    fn run(&mut self, section: &Section) -> Result<(), EngineError> {
        for (index, op) in section.ops.iter().enumerate() {
            self.context.enter(label(op.layer), op.operation.name())?;
            for storage in &section.lifetimes.births[index] {
                self.slots.begin(*storage)?;
            }
            self.timed(op)?;
            for storage in &section.lifetimes.deaths[index] {
                self.slots.end(*storage)?;
            }
        }
        Ok(())
    }

    fn timed(&mut self, op: &Op) -> Result<(), EngineError> {
        let start = Instant::now();
        self.execute(&op.operation)?;
        *self.breakdown.entry(op.operation.name()).or_default() += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// The first sequence, in the global batch, of this rank's part of the current microbatch.
    fn first_sequence(&self) -> usize {
        let layout = &self.program.layout;
        let grid = &layout.grid;
        let share = layout.global_batch / grid.size(Axis::Data);
        self.place.on(Axis::Data) * share
            + self.microbatch * layout.microbatch
            + self.place.on(Axis::Z) * (layout.microbatch / grid.size(Axis::Z))
    }

    /// The token row, counted over the global batch, of a value's first local row.
    pub(crate) fn first_row(&self, value: ValueId) -> usize {
        let value = self.program.value(value);
        let inner: Vec<Axis> =
            value.sharding.rows.iter().copied().filter(|axis| !matches!(axis, Axis::Data | Axis::Z)).collect();
        let index = self.program.layout.grid.shard_index(self.place, &inner);
        self.first_sequence() * self.program.layout.seq_len + index * value.local_rows
    }

    /// The logical column of a value's first local column.
    pub(crate) fn first_col(&self, value: ValueId) -> usize {
        let value = self.program.value(value);
        self.program.layout.grid.shard_index(self.place, &value.sharding.cols) * value.local_cols
    }
}

/// A layer's name for the communicator's reports.
pub(crate) fn label(layer: Layer) -> Label {
    match layer {
        Layer::Embedding => Label::new("embedding"),
        Layer::Block(index) => Label::indexed("block", index as u32),
        Layer::Head => Label::new("head"),
        Layer::Step => Label::new("step"),
    }
}
