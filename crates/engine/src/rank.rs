//! One rank of a training job: its memory, its place in the grid, and one optimizer step.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use quadrille_comm::{Group, Label, Ledger as Counted, Pending, RankContext};
use quadrille_spec::{AxesLedger, AxisSet, Coordinate, FlopsLedger};
use quadrille_step::schedule::Action;
use quadrille_step::{Layer, Loads, ParameterId, StageProgram, StepProgram, StorageId, ValueId, Verdict};
use serde::{Deserialize, Serialize};

use crate::divergence::Scan;
use crate::execute::Flight;
use crate::fusion::Biased;
use crate::generate::PassPositions;
use crate::initial::fill_shard;
use crate::optimizer::OptimizerStates;
use crate::samples::{BatchCounts, OwnSamples};
use crate::section::OperationSpan;
use crate::slots::{Block, Slots};
use crate::streamed::Streamed;
use crate::tier::State;
use crate::{Backend, BatchSource, Chosen, EngineError, Hyper, InitialValues, MatmulChoices, Routed, Shard, Totals};

/// How long a pass lasts at least.
pub type Pace<'a> = Box<dyn Fn(Action) -> Duration + Send + 'a>;

/// What a step gave, equal on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepOutcome {
    /// Mean loss over the global batch: over all target tokens, in nats, or over all numbers of all patches.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// The step's learning rate.
    pub learning_rate: f64,
    /// What routers have lost and dropped, if the model has experts.
    pub router: Option<Routed>,
    /// Whether the gradient was applied: loss and norm are finite, and the loss is not above the limit.
    pub applied: bool,
    /// Whether an update that was begun before the norm was known was done again, since the gradient was clipped.
    pub repeated: bool,
}

impl StepOutcome {
    /// What became of an update that was begun before the norm was known.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.applied, self.repeated)
    }
}

/// One rank's state of a training job.
pub struct RankEngine<'a, B: Backend> {
    /// The program of all stages.
    pub(crate) whole: &'a StepProgram,
    /// That of this rank's stage.
    pub(crate) program: &'a StageProgram,
    pub(crate) context: &'a RankContext,
    /// What it computes with; engines that have storages in common share it.
    pub(crate) backend: Rc<B>,
    pub(crate) place: Coordinate,
    pub(crate) slots: Slots<'a, B>,
    /// What the optimizer keeps, by parameter, if it is on the device.
    pub(crate) states: BTreeMap<ParameterId, OptimizerStates<B>>,
    /// Else: what comes in buckets.
    pub(crate) streamed: Option<Streamed<'a, B>>,
    /// By parameter: where the kept elements of its tile lie, if it is pruned and masks are known.
    pub(crate) kept: Vec<Option<B::Indices>>,
    pub(crate) groups: BTreeMap<AxisSet, Group>,
    /// The first and the last stage, on their ranks.
    pub(crate) pipe_ends: Option<Group>,
    /// The ranks that hold the same keys and values, by how many they are, where there are others.
    pub(crate) key_copies: BTreeMap<usize, Group>,
    /// Collectives under way, by the storage of their output.
    pub(crate) flights: BTreeMap<StorageId, Flight<B>>,
    /// Messages under way, by storage and copy.
    pub(crate) messages: BTreeMap<(StorageId, usize), Pending<Block<B>>>,
    pub(crate) matmuls: MatmulChoices,
    /// Angles of the positions of this rank's tokens, if attention turns by them.
    pub(crate) angles: Vec<B::Angles>,
    pub(crate) hyper: Hyper,
    pub(crate) seed: u64,
    pub(crate) step: u64,
    /// Updates that were applied: at most as many as steps, and the time by which the optimizer corrects its moments.
    pub(crate) updates: u64,
    pub(crate) microbatch: usize,
    /// The step and microbatch that the samples are of.
    pub(crate) samples_of: Option<(u64, usize)>,
    /// As they were read, where the device has memory of its own; else what the next ones are read into.
    pub(crate) staged: OwnSamples,
    pub(crate) samples: B::Samples,
    /// Counts of the step's global batch, if its routers need them: this rank's until they are summed.
    pub(crate) step_counts: Option<BatchCounts>,
    /// Sequences of the global batch, from its first on, that count: all of them but in an evaluation's last batch.
    pub(crate) sequences: usize,
    /// Of a pass of generation.
    pub(crate) pass: PassPositions,
    /// Transfers that the next ledger has beside those that the communicator has counted.
    pub(crate) set_aside: Counted,
    /// Of the last step that was done.
    pub(crate) totals: Totals,
    /// What became of the last update, if it was begun before the norm was known.
    pub(crate) verdict: Verdict,
    /// The power of two by which gradients are multiplied until the update.
    pub(crate) loss_scale: f64,
    /// A gradient is applied only if the loss is no larger.
    pub(crate) loss_limit: f64,
    /// The rows that experts which drop nothing have got, of the last pass over each microbatch.
    pub(crate) loads: Loads,
    /// How often each expert was chosen in the step, of all blocks.
    pub(crate) chosen: Vec<u64>,
    /// Whose operation is executed.
    pub(crate) layer: Layer,
    /// What tokens have chosen, while that is recorded.
    pub(crate) choices: Option<Vec<Chosen>>,
    /// Whether what operations write is looked at.
    pub(crate) scan: Option<Scan>,
    /// Products' outputs that have got their bias already.
    pub(crate) biased: Biased,
    /// Gradients whose squares are still to be summed, in their order, with the elements of each that count.
    pub(crate) squares: Vec<(ValueId, Vec<Range<usize>>)>,
    /// A ledger of transfers with every key that the program can use.
    pub(crate) empty_axes: AxesLedger,
    pub(crate) flops: FlopsLedger,
    /// Elements swept over by element-wise operations.
    pub(crate) elements: BTreeMap<Cow<'static, str>, u64>,
    /// Seconds per operation kind since [`RankEngine::take_breakdown`].
    pub(crate) breakdown: BTreeMap<&'static str, f64>,
    /// What was executed when, if it is recorded.
    pub(crate) spans: Option<Vec<OperationSpan>>,
    /// How long each pass lasts at least.
    pub(crate) pace: Option<Pace<'a>>,
}

impl<'a, B: Backend> RankEngine<'a, B> {
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
        Self::with_states_in(program, context, threads, hyper, seed, initial, None)
    }

    /// The same with the states that do not lie on the device in a file of the rank in a folder; `None`: in the host's memory.
    ///
    /// # Errors
    /// The job was stopped; the folder has no room.
    pub fn with_states_in(
        program: &'a StepProgram,
        context: &'a RankContext,
        threads: usize,
        hyper: Hyper,
        seed: u64,
        initial: InitialValues,
        folder: Option<&Path>,
    ) -> Result<Self, EngineError> {
        let backend = Rc::new(B::open(context.rank(), threads)?);
        let mut engine = Self::allocate(program, context, backend, hyper, seed, &[], folder)?;
        for index in 0..engine.program.parameters.len() {
            engine.draw(index, initial)?;
        }
        Ok(engine)
    }

    /// Fills in the initial values of a parameter, and of its master copy if it has one: the stored ones are the master's,
    /// rounded.
    pub(crate) fn draw(&mut self, index: usize, initial: InitialValues) -> Result<(), EngineError> {
        let program = self.program;
        let place = self.place;
        let seed = self.seed;
        let backend = self.backend.clone();
        let parameter = &program.parameters[index];
        let fill = |shard: Shard, numbers: &mut [B::Real]| {
            fill_shard(backend.pool(), parameter, shard, seed, initial, numbers);
        };
        let storage = program.value(parameter.value).storage;
        let mut buffer = self.slots.take(storage)?;
        let stored = Shard::of(program, parameter, parameter.value, place);
        backend.upload(&mut buffer.whole_mut(), |numbers| fill(stored, numbers))?;
        self.slots.put(storage, buffer);
        // Where kept elements lie is not known yet, a pruned one has no state to draw.
        if parameter.compressed.is_none() || self.kept[index].is_some() {
            let updated = self.shard(ParameterId(index), parameter.updated)?;
            self.change_state(ParameterId(index), State::Master, |numbers| fill(updated, numbers))?;
        }
        Ok(())
    }

    /// Runs one optimizer step: every microbatch forward and backward, then reduction and update.
    ///
    /// # Errors
    /// The job was stopped, or data is missing.
    pub fn step(&mut self, batch: &BatchSource) -> Result<StepOutcome, EngineError> {
        self.run_program(batch)?;
        let applied = self.update_rule().update(self.totals).applied;
        self.updates += u64::from(applied);
        Ok(StepOutcome {
            loss: self.totals.loss / self.totals.targets as f64,
            gradient_norm: self.update_rule().gradient_norm(self.totals),
            learning_rate: crate::schedule(&self.hyper, self.step),
            router: (!self.chosen.is_empty())
                .then(|| Routed::new(self.whole, self.totals, &self.chosen, self.tokens())),
            applied,
            repeated: self.verdict == Verdict::Repeated,
        })
    }

    /// All passes, then what follows the last.
    pub(crate) fn run_program(&mut self, batch: &BatchSource) -> Result<(), EngineError> {
        let program = self.program;
        self.step += 1;
        self.step_counts = None;
        self.backend.begin_step()?;
        self.flops = FlopsLedger::default();
        self.elements.clear();
        self.run_passes(batch)?;
        self.run(&program.update, None)?;
        self.totals = self.backend.totals()?;
        self.chosen = self.backend.loads()?;
        Ok(self.context.enter(Label::new("step"), "finish")?)
    }

    /// Multiplies gradients by a power of two from the next step on, until the update divides by it.
    ///
    /// # Panics
    /// If it is none.
    pub fn set_loss_scale(&mut self, scale: u32) {
        assert!(scale.is_power_of_two(), "{scale} is no power of two");
        self.loss_scale = f64::from(scale);
    }

    /// Makes passes last at least as long as `pace` says, by waiting: for experiments with unequal stages, or with more
    /// ranks than cores.
    pub fn set_pace(&mut self, pace: Pace<'a>) {
        self.pace = Some(pace);
    }

    /// Switches the recording of operations and of this rank's communication on or off.
    pub fn record_spans(&mut self, on: bool) {
        self.spans = on.then(Vec::new);
        self.context.record_spans(on);
    }

    /// Leaves out of what is recorded what another engine does on this one's behalf.
    pub(crate) fn pause_spans(&self, pause: bool) {
        if self.spans.is_some() {
            self.context.record_spans(!pause);
        }
    }

    /// What was recorded since the last call.
    pub(crate) fn take_spans(&mut self) -> Vec<OperationSpan> {
        self.spans.as_mut().map(std::mem::take).unwrap_or_default()
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
