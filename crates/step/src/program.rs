//! The step program: built once from model and layout, a part for every stage; all ranks of a stage share theirs.

use std::fmt;

use quadrille_spec::{Axis, CollectiveKind, Coordinate, Grid, Layout, Model, Recompute, Schedule};

use crate::builder::Builder;
use crate::generation::{self, Generation};
use crate::kept::check_pruned;
use crate::ledger::check_counts;
use crate::schedule::{self, Action, Pass, Pipeline, ScheduleError, Step};
use crate::{
    Bucket, Collective, Format, KeptCounts, Lifetimes, Op, Parameter, Placement, Practice, StepError, StorageId,
    StorageInfo, Value, ValueId, backward, blocks, instances, passes, update,
};

/// A part of the model, for ledgers and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Token and position embedding.
    Embedding,
    /// A transformer block.
    Block(usize),
    /// Final norm, language-model head and loss.
    Head,
    /// What belongs to the whole step: loss and norm.
    Step,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::Block(index) => write!(f, "block {index}"),
            Self::Head => f.write_str("head"),
            Self::Step => f.write_str("step"),
        }
    }
}

/// A value that passes between stages, and the layer on this side of the boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub value: ValueId,
    pub layer: Layer,
}

/// What a pass receives before it begins and sends when it ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Boundaries {
    pub receives: Option<Boundary>,
    pub sends: Option<Boundary>,
}

/// A value that is received from, or sent to, another stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// What is received or sent.
    pub value: ValueId,
    /// The other stage's coordinate on the pipe axis.
    pub peer: usize,
    /// Tells boundaries and directions apart; messages of one tag arrive in the order of microbatches.
    pub tag: u32,
    /// For ledgers and messages.
    pub layer: Layer,
}

/// A list of operations with the births and deaths of the storages that live in it, and what it exchanges with other
/// stages. Received storages are born when their receive is posted, sent ones die when their send is released.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// In the order of execution.
    pub ops: Vec<Op>,
    /// When storages are taken and given back.
    pub lifetimes: Lifetimes,
    /// Received before the first operation.
    pub receives: Vec<Message>,
    /// Sent after the last operation.
    pub sends: Vec<Message>,
}

/// The passes of a microbatch through one piece of layers.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkProgram {
    /// The number of the piece in the order of the model.
    pub piece: usize,
    /// Forward.
    pub forward: Section,
    /// Backward; without the gradients of weights where the schedule puts them off.
    pub backward: Section,
    /// The gradients of weights that are put off; else empty.
    pub weight_gradient: Section,
}

impl ChunkProgram {
    /// The operations of a pass.
    pub fn section(&self, pass: Pass) -> &Section {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
            Pass::WeightGradient => &self.weight_gradient,
        }
    }

    /// All passes, in the order in which a microbatch goes through them.
    pub fn sections(&self) -> [&Section; 3] {
        [&self.forward, &self.backward, &self.weight_gradient]
    }
}

/// What a program is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An optimizer step.
    Training,
    /// The loss of a batch: forward passes without dropout, then the sum of the loss over ranks. Parameters lie as in the
    /// training program of the same layout.
    Evaluation,
    /// Logits from tokens, with keys and values of earlier passes in a cache.
    Generation(Generation),
}

/// The program of the ranks of one stage: the passes in the order of `steps`, then the update.
#[derive(Debug, Clone, PartialEq)]
pub struct StageProgram {
    /// The model that is trained.
    pub model: Model,
    /// How it is spread.
    pub layout: Layout,
    /// What it is run for.
    pub purpose: Purpose,
    /// How numbers are stored and what is kept.
    pub practice: Practice,
    /// The coordinate on the pipe axis.
    pub stage: usize,
    /// Every value.
    pub values: Vec<Value>,
    /// Every storage.
    pub storages: Vec<StorageInfo>,
    /// Every parameter of the stage.
    pub parameters: Vec<Parameter>,
    /// The pieces of layers that the stage owns.
    pub chunks: Vec<ChunkProgram>,
    /// What is posted, run and released, in order. A message-driven stage may run ready passes in another order.
    pub steps: Vec<Step>,
    /// Reduction of gradients, norm, optimizer; without training what follows the last microbatch's pass.
    pub update: Section,
    /// Keys and values of earlier passes, by block of the stage; only for generation.
    pub caches: Vec<ValueId>,
    /// The logits of all sequences, equal on every rank; only for generation.
    pub logits: Option<ValueId>,
    /// What the update fetches and stores of states in the host's memory; none: they are on the device.
    pub buckets: Vec<Bucket>,
    /// Where the storages of all sections lie.
    pub placement: Placement,
}

/// One optimizer step of all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct StepProgram {
    /// The model that is trained.
    pub model: Model,
    /// How it is spread.
    pub layout: Layout,
    /// What is kept of pruned tensors; empty: the model is whole.
    pub kept: KeptCounts,
    /// By coordinate on the pipe axis.
    pub stages: Vec<StageProgram>,
}

impl StepProgram {
    /// Builds the program and applies the passes of the layout.
    ///
    /// # Errors
    /// A dimension that its axes do not divide; a step too large to be counted.
    pub fn new(model: &Model, layout: &Layout) -> Result<Self, StepError> {
        Self::with_practice(model, layout, Practice::of(layout))
    }

    /// The same by another practice: what a framework other than this program's engine would run. An engine runs it if its
    /// numbers and shards are stored as the engine's are.
    ///
    /// # Errors
    /// As [`StepProgram::new`].
    pub fn with_practice(model: &Model, layout: &Layout, practice: Practice) -> Result<Self, StepError> {
        Self::build(model, layout, Purpose::Training, practice, KeptCounts::new())
    }

    /// [`StepProgram::new`] of a pruned model. Tensors without a count are whole.
    ///
    /// # Errors
    /// As [`StepProgram::new`]; a count of a tensor that is none or cannot be pruned, or of more than its tile has; a tile of a
    /// pruned tensor that is too large for its indices; pruned keys that several ranks would hold.
    pub fn pruned(model: &Model, layout: &Layout, kept: KeptCounts) -> Result<Self, StepError> {
        let program = Self::build(model, layout, Purpose::Training, Practice::of(layout), kept)?;
        check_pruned(&program.stages, &program.kept)?;
        Ok(program)
    }

    /// The training program of the same model, as far pruned, in the same layout but for what is computed again.
    ///
    /// # Errors
    /// As [`StepProgram::new`].
    pub fn with_recompute(&self, recompute: Recompute) -> Result<Self, StepError> {
        let layout = Layout { recompute, ..self.layout.clone() };
        let practice = Practice { sparsity: self.stages[0].practice.sparsity, ..Practice::of(&layout) };
        Self::build(&self.model, &layout, Purpose::Training, practice, self.kept.clone())
    }

    /// [`StepProgram::new`] whose stages run these passes, in this order, instead of those of the layout's schedule.
    ///
    /// # Errors
    /// As [`StepProgram::new`]; lists that [`schedule::check`] refuses; a layout whose stages decide by what arrives. Lists have
    /// weight gradients of their own if and only if the layout's schedule has them.
    pub fn with_actions(model: &Model, layout: &Layout, lists: &[Vec<Action>]) -> Result<Self, StepError> {
        if layout.schedule == Schedule::MessageDriven {
            return Err(ScheduleError::Decided.into());
        }
        let pipeline = Pipeline::of(layout);
        schedule::check(lists, pipeline, schedule::splits_weight_gradients(layout.schedule))?;
        let steps = schedule::steps(lists, pipeline)?;
        Self::of_steps(model, layout, Purpose::Training, Practice::of(layout), steps, KeptCounts::new())
    }

    /// The forward passes of [`StepProgram::new`] alone, in the schedule's order of forward passes, without dropout, and
    /// the sum of the loss. Parameters have the names, shardings and storages of the training program's; gradients,
    /// optimizer states and everything that serves the backward pass are left out, so that the choices of recomputation,
    /// of weight gradients' order and of ZeRO change nothing but how parameters lie.
    ///
    /// # Errors
    /// As [`StepProgram::new`].
    pub fn evaluation(model: &Model, layout: &Layout) -> Result<Self, StepError> {
        let model = Model { dropout: 0.0, ..model.clone() };
        Self::build(&model, layout, Purpose::Evaluation, Practice::of(layout), KeptCounts::new())
    }

    /// A pass of generation: `layout.seq_len` tokens of each sequence, behind those in the cache. The layout is one of
    /// [`Layout::for_generation`].
    ///
    /// # Errors
    /// As [`StepProgram::new`]; a model that does not predict tokens from those before them; a cache shorter than a
    /// pass, or longer than the model's sequences.
    pub fn generation(model: &Model, layout: &Layout, generation: Generation) -> Result<Self, StepError> {
        generation.check(model, layout)?;
        Self::build(
            &Model { dropout: 0.0, ..model.clone() },
            layout,
            Purpose::Generation(generation),
            Practice::of(layout),
            KeptCounts::new(),
        )
    }

    fn build(
        model: &Model,
        layout: &Layout,
        purpose: Purpose,
        practice: Practice,
        kept: KeptCounts,
    ) -> Result<Self, StepError> {
        let pipeline = Pipeline::of(layout);
        let steps = match purpose {
            Purpose::Training => schedule::steps(&schedule::actions(layout.schedule, pipeline)?, pipeline)?,
            _ => schedule::forward_steps(&schedule::forward_actions(layout.schedule, pipeline)?, pipeline)?,
        };
        Self::of_steps(model, layout, purpose, practice, steps, kept)
    }

    fn of_steps(
        model: &Model,
        layout: &Layout,
        purpose: Purpose,
        practice: Practice,
        steps: Vec<Vec<Step>>,
        kept: KeptCounts,
    ) -> Result<Self, StepError> {
        let stage = |(stage, steps)| StageProgram::new(model, layout, purpose, practice, &kept, stage, steps, |_| None);
        let stages = steps.into_iter().enumerate().map(stage);
        let mut stages = stages.collect::<Result<Vec<_>, _>>()?;
        stages.iter_mut().for_each(StageProgram::place);
        let program = Self { model: model.clone(), layout: layout.clone(), kept, stages };
        program.stages.iter().try_for_each(check_counts)?;
        Ok(program)
    }

    /// The program of a rank's stage.
    pub fn of_rank(&self, rank: usize) -> &StageProgram {
        &self.stages[self.layout.grid.coordinate(rank).on(Axis::Pipe)]
    }

    /// The layers in the order of the model.
    pub fn layers(&self) -> Vec<Layer> {
        self.stages[0].layers()
    }

    /// Every parameter once, in the order of the model's stages.
    pub fn parameters(&self) -> impl Iterator<Item = (&StageProgram, &Parameter)> {
        let all = self.stages.iter().flat_map(|stage| stage.parameters.iter().map(move |each| (stage, each)));
        all.filter(|(_, parameter)| !parameter.copy)
    }
}

impl StageProgram {
    /// Where storages lie is left open. `like` says of a chunk which of those before it has the same operations and may be
    /// copied.
    pub(crate) fn new(
        model: &Model,
        layout: &Layout,
        purpose: Purpose,
        practice: Practice,
        kept: &KeptCounts,
        stage: usize,
        steps: Vec<Step>,
        like: impl Fn(usize) -> Option<usize>,
    ) -> Result<Self, StepError> {
        let mut builder = Builder::new(model, layout, purpose, practice, kept);
        let stages = layout.grid.size(Axis::Pipe);
        let mut chunks: Vec<ChunkProgram> = Vec::new();
        let mut made = vec![builder.made()];
        for chunk in 0..layout.chunks {
            let piece = chunk * stages + stage;
            chunks.push(match like(chunk) {
                Some(other) => builder.again(&chunks[other], [made[other], made[other + 1]], piece),
                None => chunk_program(&mut builder, piece)?,
            });
            made.push(builder.made());
        }
        let logits = match purpose {
            Purpose::Training => update::update(&mut builder).map(|()| None)?,
            Purpose::Evaluation => {
                update::reduce_loss(&mut builder);
                None
            }
            Purpose::Generation(generation) => Some(generation::logits(&mut builder, generation)?),
        };
        let mut update = Section { ops: std::mem::take(&mut builder.ops), ..Section::default() };
        if practice.reduces_under_backward {
            passes::reduce_under_backward(&builder, &mut chunks, &mut update.ops);
        }
        let Builder { values, storages, parameters, caches, buckets, .. } = builder;
        let placement = Placement::default();
        let model = model.clone();
        let layout = layout.clone();
        let mut program = Self {
            model,
            layout,
            purpose,
            practice,
            stage,
            values,
            storages,
            parameters,
            chunks,
            steps,
            update,
            caches,
            logits,
            buckets,
            placement,
        };
        program.time_storages();
        Ok(program)
    }

    /// Computes from the operations and steps when storages live, how many copies of them there are, and where they
    /// lie. Whoever changes operations has to call it again.
    pub fn place_storages(&mut self) {
        self.time_storages();
        self.place();
    }

    /// When storages live, and how many copies of them there are.
    fn time_storages(&mut self) {
        let reserved = self.is_message_driven();
        let most = self.grid().size(Axis::Pipe).min(self.layout.microbatches());
        instances::count(&self.chunks, &self.steps, reserved.then_some(most), &self.values, &mut self.storages);
        for chunk in &mut self.chunks {
            Lifetimes::set(chunk, &self.values, &self.storages, reserved);
        }
        self.update.lifetimes = Lifetimes::of(self.update.ops.iter(), &self.values, &self.storages);
    }

    /// Where they lie.
    pub(crate) fn place(&mut self) {
        let pipelined = self.grid().size(Axis::Pipe) > 1 || self.is_message_driven();
        self.placement = Placement::of(&self.chunks, &self.update, &self.storages, pipelined);
    }

    /// A value by its number.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// What a value's numbers are for.
    pub fn format(&self, id: ValueId) -> Format {
        self.storages[self.value(id).storage.0].format
    }

    /// Bytes of a value's elements.
    pub fn element_bytes(&self, id: ValueId) -> u64 {
        self.storages[self.value(id).storage.0].element_bytes
    }

    /// Bytes of an element of a collective's payload: gradients, updated parameters and what products are given travel as the
    /// practice sends them.
    pub fn sent_element_bytes(&self, collective: &Collective) -> u64 {
        let gathers = collective.kind == CollectiveKind::AllGather;
        match self.format(collective.output) {
            Format::Gradients => self.practice.formats.sent,
            Format::VectorGradients => self.practice.formats.sent_vectors,
            Format::Operands if gathers => self.practice.formats.operands,
            Format::OperandGradients if gathers => self.practice.formats.operand_gradients,
            _ => self.element_bytes(collective.output),
        }
    }

    /// Bytes that a rank stores of a value.
    pub fn local_bytes(&self, id: ValueId) -> u64 {
        self.value(id).local_elements as u64 * self.element_bytes(id)
    }

    /// The size of every axis.
    pub fn grid(&self) -> &Grid {
        &self.layout.grid
    }

    /// The elements that are no padding, of a value's part on the rank at `place`: ZeRO shards are equally long, so the
    /// last ones may reach beyond the end of what they cut.
    pub fn valid_elements(&self, id: ValueId, place: Coordinate) -> usize {
        let value = self.value(id);
        let flat = &value.sharding.flat;
        let replicating: Vec<Axis> = flat.iter().copied().filter(|axis| *axis != Axis::Z).collect();
        if replicating.is_empty() {
            return value.local_elements;
        }
        let of_z = value.sharding.z_share(value.local_rows * value.local_cols, self.grid());
        let whole = value.pruned.map_or(of_z, |kept| kept.of(of_z));
        let first = self.grid().shard_index(place, &replicating) * value.local_elements;
        whole.saturating_sub(first).min(value.local_elements)
    }

    /// The layers in the order of the model.
    pub fn layers(&self) -> Vec<Layer> {
        let blocks = (0..self.model.layers()).map(Layer::Block);
        [Layer::Embedding].into_iter().chain(blocks).chain([Layer::Head, Layer::Step]).collect()
    }

    /// The operations of an action.
    pub fn section(&self, action: Action) -> &Section {
        self.chunks[action.chunk].section(action.pass)
    }

    /// Whether passes run as messages arrive; then the memory of all microbatches in flight is reserved.
    pub fn is_message_driven(&self) -> bool {
        self.trains() && self.layout.schedule == Schedule::MessageDriven
    }

    /// Whether there are gradients and optimizer states.
    pub fn trains(&self) -> bool {
        self.purpose == Purpose::Training
    }

    /// The storages that hold the same here and in `other`, a program of the same stage of the same model and grid:
    /// those of parameters, and of caches if both have them. Pairs of numbers here and there.
    pub fn common_storages(&self, other: &Self) -> Vec<(StorageId, StorageId)> {
        let parameters = self.parameters.iter().zip(&other.parameters).map(|(a, b)| (a.value, b.value));
        let values = parameters.chain(self.caches.iter().copied().zip(other.caches.iter().copied()));
        values.map(|(here, there)| (self.value(here).storage, other.value(there).storage)).collect()
    }
}

/// The passes of one piece: built, transformed, and split where weight gradients are put off.
fn chunk_program(b: &mut Builder, piece: usize) -> Result<ChunkProgram, StepError> {
    let first = b.values.len();
    if piece < b.layout.grid.size(Axis::Pipe) {
        update::count_batch(b);
    }
    let receives_and_sends = blocks::forward(b, piece)?;
    let mut forward = std::mem::take(&mut b.ops);
    let mut gradients = Boundaries::default();
    let mut backward = Vec::new();
    if b.purpose == Purpose::Training {
        gradients = backward::backward(b)?;
        backward = std::mem::take(&mut b.ops);
        passes::recompute(b, &forward, &mut backward)?;
    }
    b.tape.clear();
    let copies = passes::interleave(b, first, &mut forward, &mut backward);
    passes::overlap(b, &mut forward, &mut backward);
    let mut weight_gradient = Vec::new();
    if b.purpose == Purpose::Training && b.layout.schedule == Schedule::ZeroBubble {
        weight_gradient = passes::put_off_weight_gradients(&b.values, &mut backward)?;
    }

    let stages = b.layout.grid.size(Axis::Pipe);
    let messages = |boundary: Option<Boundary>, peer: usize, tag: usize| -> Vec<Message> {
        let values = boundary
            .into_iter()
            .flat_map(|at| copies.iter().map(move |copy| (copy.get(&at.value).copied().unwrap_or(at.value), at.layer)));
        values.map(|(value, layer)| Message { value, peer: peer % stages, tag: tag as u32, layer }).collect()
    };
    // Boundary i lies before piece i; even tags go forward, odd ones backward.
    let before = 2 * piece;
    let after = 2 * piece + 2;
    let previous = piece + stages - 1;
    let next = piece + 1;
    let section = |ops, receives, sends| Section { ops, receives, sends, lifetimes: Lifetimes::default() };
    Ok(ChunkProgram {
        piece,
        forward: section(
            forward,
            messages(receives_and_sends.receives, previous, before),
            messages(receives_and_sends.sends, next, after),
        ),
        backward: section(
            backward,
            messages(gradients.receives, next, after + 1),
            messages(gradients.sends, previous, before + 1),
        ),
        weight_gradient: section(weight_gradient, Vec::new(), Vec::new()),
    })
}
