//! Small programs that stand for large ones: pieces of up to three blocks, at the beginning, in the middle and at the end
//! of a pipeline, or as the whole of it.

use std::collections::HashMap;
use std::hash::Hash;

use quadrille_spec::{Axis, AxisSet, Grid, Layout, Linear, Model, Recompute, Schedule};
use quadrille_step::{
    Collective, Layer, Members, Operation, Section, StageProgram, StepProgram, StorageId, ValueId, kind,
};

use super::holdings::Holdings;
use super::shapes::Shapes;
use super::tape::{Tape, Task};
use crate::native::{Candidate, PriceError, Problem};

/// Stages of a pipeline that stands for all.
const STAGES: usize = 3;

/// What candidates have in common whose pieces of layers have the same operations: only sizes differ.
pub(super) fn structure(model: &Model, c: &Candidate) -> Candidate {
    // Panels, and copies of keys, are told by the sizes of the mesh.
    let exact = c.linear == Linear::Summa || c.size(Axis::X) > model.kv_heads;
    let size = |axis: Axis| match axis {
        Axis::X | Axis::Y if exact => c.size(axis),
        _ => c.size(axis).min(2),
    };
    Candidate {
        sizes: Axis::ALL.map(size),
        inside: [1; 6],
        microbatch: 1,
        summa_panels: if exact { c.summa_panels } else { 1 },
        schedule: if c.schedule == Schedule::ZeroBubble { c.schedule } else { Schedule::OneForwardOneBackward },
        chunks: 1,
        recompute: if let Recompute::Full { .. } = c.recompute { Recompute::Full { every: 1 } } else { c.recompute },
        ..*c
    }
}

/// Counts of blocks that are measured: none to three.
pub(super) const PROBED: usize = 4;

/// A collective as it is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Communication {
    /// Of values.
    Values(Collective),
    /// Of so many scalars.
    Scalars(AxisSet, usize),
}

/// Things by their numbers, each once.
#[derive(Debug, Clone)]
pub(super) struct Numbered<T> {
    /// In the order of their numbers.
    pub all: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T: Hash + Eq + Clone> Numbered<T> {
    fn new() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }

    fn number(&mut self, thing: T) -> usize {
        let next = self.all.len();
        let number = *self.numbers.entry(thing.clone()).or_insert(next);
        if number == next {
            self.all.push(thing);
        }
        number
    }
}

/// A piece of layers.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Forward, backward, gradients of weights that are put off.
    pub passes: [Tape; 3],
    pub update: Tape,
    pub holdings: Holdings,
    /// What it sends to the next stage after a forward pass.
    pub sends: Vec<ValueId>,
}

/// Parameters of a rank: the shape of each, and whether its gradient comes from products.
pub(super) type Parameters = Vec<(ValueId, bool)>;

/// The pieces of a structure.
#[derive(Debug, Clone)]
pub(super) struct Template {
    pub shapes: Shapes,
    /// Computations, in shapes.
    pub works: Numbered<Operation>,
    pub collectives: Numbered<Communication>,
    /// Computations that follow each other.
    pub runs: Numbered<Vec<usize>>,
    /// Most collectives that are told apart in a tape.
    pub flights: usize,
    /// By place (the first, those between, the last; or the only one): with so many blocks. Those between, and the only
    /// one, have one at least.
    pub pieces: Vec<[Piece; PROBED]>,
    /// Of a block, and what the places have beside blocks.
    pub block: Parameters,
    pub ends: Vec<Parameters>,
}

impl Template {
    /// Of the structure of a candidate.
    ///
    /// # Errors
    /// A candidate that has no program.
    pub fn new(problem: &Problem, c: &Candidate) -> Result<Self, PriceError> {
        let [none, one, two, three] = [probe(problem, c, 0)?, probe(problem, c, 1)?, probe(problem, c, 2)?, probe(problem, c, 3)?];
        let mut template = Self {
            shapes: Shapes::like(&one.stages[0]),
            works: Numbered::new(),
            collectives: Numbered::new(),
            runs: Numbered::new(),
            flights: 0,
            pieces: Vec::new(),
            block: Vec::new(),
            ends: Vec::new(),
        };
        for (place, one) in one.stages.iter().enumerate() {
            let pieces = [&none.stages[place], one, &two.stages[place], &three.stages[place]].map(|stage| template.piece(stage));
            template.pieces.push(pieces);
            template.parameters(one);
        }
        Ok(template)
    }

    fn parameters(&mut self, stage: &StageProgram) {
        let is_block = |layer: Layer| matches!(layer, Layer::Block(_));
        let shape = |template: &mut Self, in_block: bool| -> Parameters {
            let parameters = stage.parameters.iter().filter(|parameter| is_block(parameter.layer) == in_block);
            let by_product = |value: ValueId| !stage.value(value).sharding.flat.is_empty();
            parameters.map(|each| (template.shapes.value(stage, each.value), by_product(each.value))).collect()
        };
        self.block = shape(self, true);
        let ends = shape(self, false);
        self.ends.push(ends);
    }

    fn piece(&mut self, stage: &StageProgram) -> Piece {
        let chunk = &stage.chunks[0];
        let shapes: Vec<ValueId> =
            (0..stage.values.len()).map(|value| self.shapes.value(stage, ValueId(value))).collect();
        let mut telling = Telling { template: self, stage, shapes: &shapes };
        let passes = chunk.sections().map(|section| telling.tape(section));
        let update = telling.tape(&stage.update);
        let sends = chunk.forward.sends.iter().map(|message| shapes[message.value.0]).collect();
        Piece { passes, update, sends, holdings: Holdings::new(stage, chunk, &mut self.shapes) }
    }
}

/// A program of a candidate's structure and sizes with pieces of so many blocks. Only ends of a pipeline may have none.
fn probe(problem: &Problem, c: &Candidate, blocks: usize) -> Result<StepProgram, PriceError> {
    let stages = if c.size(Axis::Pipe) > 1 { STAGES } else { 1 };
    let mut sizes = c.sizes;
    sizes[Axis::Pipe as usize] = stages;
    let mut stage_blocks = vec![blocks; stages];
    stage_blocks[stages / 2] = blocks.max(1);
    let model = Model { layers: stage_blocks.iter().sum(), ..problem.model.clone() };
    let canonical = structure(&problem.model, c);
    let layout = Layout {
        grid: Grid::of_sizes(sizes)?,
        schedule: canonical.schedule,
        recompute: canonical.recompute,
        chunks: 1,
        microbatch_group: stages,
        stage_blocks,
        // A microbatch for every stage.
        global_batch: c.size(Axis::Data) * c.microbatch * STAGES,
        ..c.without_pieces(problem.global_batch, problem.seq_len)?
    };
    Ok(StepProgram::new(&model, &layout)?)
}

/// A stage while its sections are told as tapes.
struct Telling<'a> {
    template: &'a mut Template,
    stage: &'a StageProgram,
    /// Of all values.
    shapes: &'a [ValueId],
}

impl Telling<'_> {
    /// What a step's first microbatch alone does is left out.
    fn tape(&mut self, section: &Section) -> Tape {
        let (mut tape, mut run) = (Tape::new(), Vec::new());
        let mut flights: Numbered<StorageId> = Numbered::new();
        let mut scalars = self.stage.storages.len();
        for op in section.ops.iter().filter(|op| !op.once) {
            let grid = self.stage.grid();
            match op.operation {
                Operation::Issue(collective) if collective.size(grid) > 1 => {
                    self.end_run(&mut run, &mut tape);
                    let flight = flights.number(self.stage.value(collective.output).storage);
                    tape.push(Task::Issue { collective: self.collective(collective), flight });
                }
                Operation::Wait(collective) if collective.size(grid) > 1 => {
                    self.end_run(&mut run, &mut tape);
                    tape.push(Task::Wait { flight: flights.number(self.stage.value(collective.output).storage) });
                }
                Operation::ReduceScalar(kind::ReduceScalar { axes, scalar }) if grid.size_of(axes) > 1 => {
                    self.end_run(&mut run, &mut tape);
                    let collective = Communication::Scalars(axes, scalar.elements());
                    let (collective, flight) =
                        (self.template.collectives.number(collective), flights.number(StorageId(scalars)));
                    tape.extend([Task::Issue { collective, flight }, Task::Wait { flight }]);
                    scalars += 1;
                }
                operation if operation.group().computes() => run.push(self.work(operation)),
                _ => {}
            }
        }
        self.end_run(&mut run, &mut tape);
        self.template.flights = self.template.flights.max(flights.all.len());
        tape
    }

    fn end_run(&mut self, run: &mut Vec<usize>, tape: &mut Tape) {
        if !run.is_empty() {
            tape.push(Task::Run(self.template.runs.number(std::mem::take(run))));
        }
    }

    fn work(&mut self, operation: Operation) -> usize {
        self.template.works.number(operation.anywhere().with_values(|value| self.shapes[value.0]))
    }

    fn collective(&mut self, collective: Collective) -> usize {
        let Collective { members, input, output, .. } = collective;
        let [input, output] = [input, output].map(|value| self.shapes[value.0]);
        // Whoever is the root, a broadcast takes as long.
        let members = if let Members::Root(_) = members { Members::Root(0) } else { members };
        self.template.collectives.number(Communication::Values(Collective { members, input, output, ..collective }))
    }
}
