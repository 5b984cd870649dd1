//! One rank of a job: its interpreter and its stage of the pipeline, and whole steps.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use quadrille_comm::RankContext;
use quadrille_spec::{ElementType, RankLedger};
use quadrille_step::{Layer, Loads, ParameterId, Practice, StepProgram, StorageId, Verdict};
use serde::{Deserialize, Serialize};

use crate::interpreter::{Interpreter, RunConstants};
use crate::observe::operation_times::OperationSpan;
use crate::optimizer::tier::State;
use crate::pipeline::Pipeline;
use crate::state::initial::fill_shard;
use crate::{
    Backend, BatchSource, Chosen, EngineError, Hyper, InitialValues, Masks, MatmulChoices, Pace, Routed, Shard,
};

/// Result of a step, equal on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepOutcome {
    /// Mean loss over the global batch: over all target tokens, in nats, or over all numbers of all patches.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// The step's learning rate.
    pub learning_rate: f64,
    /// Losses and dropped choices of routers, if the model has experts.
    pub router: Option<Routed>,
    /// True if the gradient was applied: loss and norm are finite, and the loss is not above the limit.
    pub applied: bool,
    /// True if an update that was begun before the norm was known was done again, since the gradient was clipped.
    pub repeated: bool,
}

impl StepOutcome {
    /// Outcome of an update that was begun before the norm was known.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.applied, self.repeated)
    }
}

/// One rank of a job.
pub struct RankEngine<'a, B: Backend> {
    /// The program of all stages.
    pub(crate) whole: &'a StepProgram,
    pub(crate) interpreter: Interpreter<'a, B>,
    pub(crate) pipeline: Pipeline<'a, B>,
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

    /// As [`Self::new`], with offloaded states in a file of the rank in a folder; `None`: in the host's memory.
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
        let constants = RunConstants { hyper, seed, states: folder };
        let mut engine = Self::allocate(program, context, backend, &constants, &[])?;
        for index in 0..engine.interpreter.rank.program.parameters.len() {
            engine.draw(ParameterId(index), initial)?;
        }
        Ok(engine)
    }

    /// Allocates everything except the storages `lent` by another engine.
    pub(crate) fn allocate(
        program: &'a StepProgram,
        context: &'a RankContext,
        backend: Rc<B>,
        constants: &RunConstants<'_>,
        lent: &[StorageId],
    ) -> Result<Self, EngineError> {
        check_practice::<B>(program)?;
        let interpreter = Interpreter::new(program, context, backend, constants, lent)?;
        Ok(Self { whole: program, interpreter, pipeline: Pipeline::default() })
    }

    /// Fills in the initial values of a parameter, and of its master copy if it has one: the stored values are the master's,
    /// rounded.
    fn draw(&mut self, id: ParameterId, initial: InitialValues) -> Result<(), EngineError> {
        let Interpreter { rank, backend, storages, kept, step, optimizer, .. } = &mut self.interpreter;
        let parameter = &rank.program.parameters[id.0];
        let fill = |shard: Shard, numbers: &mut [B::Real]| {
            fill_shard(backend.pool(), parameter, shard, step.seed, initial, numbers);
        };
        let storage = rank.storage(parameter.value);
        let mut buffer = storages.take(storage)?;
        let stored = Shard::of(rank.program, parameter, parameter.value, rank.place);
        backend.upload(&mut buffer.whole_mut(), |numbers| fill(stored, numbers))?;
        storages.put(storage, buffer);
        // A pruned parameter whose mask is not known yet has no state to draw.
        if kept.is_known(id) {
            let updated = kept.shard(id, parameter.updated)?;
            optimizer.change(kept, id, State::Master, |numbers| fill(updated, numbers))?;
        }
        Ok(())
    }

    /// Prunes a program's initial values.
    ///
    /// # Errors
    /// Masks that keep more than the program was built for; the job was stopped.
    pub fn prune(&mut self, masks: &Masks, initial: InitialValues) -> Result<(), EngineError> {
        self.interpreter.kept.use_masks(&mut masks.reader())?;
        let parameters = &self.interpreter.rank.program.parameters;
        for (index, parameter) in parameters.iter().enumerate() {
            if let Some(compressed) = parameter.compressed {
                let id = ParameterId(index);
                self.draw(id, initial)?;
                let Interpreter { storages, kept, .. } = &mut self.interpreter;
                kept.zero_pruned(storages, id, compressed)?;
            }
        }
        Ok(())
    }

    /// Runs one optimizer step: every microbatch forward and backward, then reduction and update.
    ///
    /// # Errors
    /// The job was stopped, or data is missing.
    pub fn step(&mut self, batch: &BatchSource) -> Result<StepOutcome, EngineError> {
        self.run_program(batch)?;
        let Interpreter { step, optimizer, .. } = &mut self.interpreter;
        let rule = optimizer.update_rule();
        let applied = rule.update(step.totals).applied;
        optimizer.updates += u64::from(applied);
        let routed = || Routed::new(self.whole, step.totals, &step.chosen, step.tokens());
        Ok(StepOutcome {
            loss: step.totals.loss / step.totals.targets as f64,
            gradient_norm: rule.gradient_norm(step.totals),
            learning_rate: crate::schedule(&optimizer.hyper, step.number),
            router: (!step.chosen.is_empty()).then(routed),
            applied,
            repeated: step.verdict == Verdict::Repeated,
        })
    }

    /// Runs all passes, then the update section.
    pub(crate) fn run_program(&mut self, batch: &BatchSource) -> Result<(), EngineError> {
        let Self { interpreter, pipeline, .. } = self;
        interpreter.step.number += 1;
        interpreter.step.counts = None;
        interpreter.backend.begin_step()?;
        interpreter.observers.ledger.begin_step();
        pipeline.run_passes(interpreter, batch)?;
        interpreter.run(&interpreter.rank.program.update, None)?;
        let Interpreter { backend, communicators, step, .. } = interpreter;
        step.totals = backend.totals()?;
        step.chosen = backend.loads()?;
        communicators.enter(Layer::Step, "finish")
    }

    /// Multiplies gradients by a power of two from the next step on, until the update divides by it.
    ///
    /// # Panics
    /// If it is none.
    pub fn set_loss_scale(&mut self, scale: u32) {
        assert!(scale.is_power_of_two(), "{scale} is no power of two");
        self.interpreter.optimizer.loss_scale = f64::from(scale);
    }

    /// Makes passes last at least as long as `pace` returns, by waiting: for experiments with unequal stages, or with more
    /// ranks than cores.
    pub fn set_pace(&mut self, pace: Pace<'a>) {
        self.pipeline.pace = Some(pace);
    }

    /// Times every product of the program in each storage of its operands, and uses the fastest from now on; a device that has
    /// algorithms to choose from times these. Every rank decides alike.
    ///
    /// # Errors
    /// The job was stopped; the device's.
    pub fn tune_matmuls(&mut self) -> Result<MatmulChoices, EngineError> {
        let Interpreter { backend, communicators, products, .. } = &mut self.interpreter;
        *products = MatmulChoices::measure(self.whole, &**backend, communicators)?;
        Ok(products.clone())
    }

    /// Uses the choices of an earlier run.
    ///
    /// # Errors
    /// The device's.
    pub fn use_matmuls(&mut self, choices: MatmulChoices) -> Result<(), EngineError> {
        choices.adopt(self.whole, &*self.interpreter.backend)?;
        self.interpreter.products = choices;
        Ok(())
    }

    /// The ledger counted since the last call; memory peaks are those of the whole run.
    pub fn take_ledger(&mut self) -> RankLedger {
        let Interpreter { rank, communicators, storages, optimizer, observers, .. } = &mut self.interpreter;
        let context = communicators.context;
        let moved = optimizer.take_moved();
        let memory = storages.memory().clone();
        observers.ledger.take(rank.program, context.rank(), context.take_ledger(), moved, memory)
    }

    /// Forgets what has been sent since the last step's ledger was taken.
    pub(crate) fn forget_transfers(&mut self) {
        self.interpreter.observers.ledger.forget_transfers();
        self.interpreter.communicators.context.take_ledger();
    }

    /// Seconds per operation kind since the last call; `wait` is communication that computation did not hide.
    pub fn take_breakdown(&mut self) -> BTreeMap<&'static str, f64> {
        self.interpreter.observers.times.take_breakdown()
    }

    /// Number of choices of each expert in the last step by the tokens of all ranks, block after block.
    pub fn loads_of_step(&self) -> &[u64] {
        &self.interpreter.step.chosen
    }

    /// Rows of experts that drop nothing since the last call, of the last pass over each microbatch.
    pub fn take_loads(&mut self) -> Loads {
        std::mem::take(&mut self.interpreter.step.loads)
    }

    /// Switches the recording of choices of experts on or off.
    pub fn record_choices(&mut self, on: bool) {
        self.interpreter.observers.choices = on.then(Vec::new);
    }

    /// Choices of the rank's tokens since the last call, if they are recorded.
    pub fn take_choices(&mut self) -> Vec<Chosen> {
        self.interpreter.observers.choices.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Switches the recording of operations and of this rank's communication on or off.
    pub fn record_spans(&mut self, on: bool) {
        let Interpreter { communicators, observers, .. } = &mut self.interpreter;
        observers.record_spans(communicators.context, on);
    }

    /// Operations recorded since the last call.
    pub(crate) fn take_spans(&mut self) -> Vec<OperationSpan> {
        self.interpreter.observers.times.take_spans()
    }
}

/// Checks that the engine stores and computes as the program's practice does.
fn check_practice<B: Backend>(program: &StepProgram) -> Result<(), EngineError> {
    let dtype = program.layout.dtype;
    let own = Practice::of(&program.layout).formats;
    let is_exact = |practice: &Practice| {
        let Practice { pads_shards, gates_apart, sparsity, imbalance, .. } = practice;
        let Practice { reserves_expert_rows, weighs_activations, counts_tokens, .. } = practice;
        let experts = *reserves_expert_rows && !weighs_activations && *counts_tokens;
        !pads_shards && !gates_apart && sparsity.is_none() && *imbalance == 1.0 && experts
    };
    let runs = |practice: &Practice| is_exact(practice) && practice.formats.run_as(&own);
    if program.stages.iter().all(|stage| runs(&stage.practice)) && stores_as::<B>(dtype) {
        return Ok(());
    }
    Err(EngineError::Formats { dtype })
}

/// True if the backend stores values in this type.
fn stores_as<B: Backend>(dtype: ElementType) -> bool {
    <B::Stored as quadrille_tensor::Stored>::NAME == dtype.to_string()
}
