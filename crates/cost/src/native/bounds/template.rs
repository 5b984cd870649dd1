//! Small programs that stand for large ones: pieces of few blocks, at the beginning, in the middle and at the end
//! of a pipeline, or as the whole of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quadrille_spec::{Axis, Grid, Layout, Linear, Model, Recompute, Schedule};
use quadrille_step::{
    FoldedProgram, Layer, Op, Operation, Scalar, Section, StageProgram, StorageId, ValueId, When, kind,
};

use super::holdings::Holdings;
use super::shapes::Shapes;
use super::tape::{Run, Tape, Task};
use super::told::{Communication, Numbered, Told, Transfer};
use crate::native::{Candidate, PriceError, Problem};

/// Stages of a pipeline that stands for all.
const STAGES: usize = 3;

/// What candidates have in common whose pieces of layers have the same operations: only sizes differ.
pub(super) fn structure(model: &Model, c: &Candidate) -> Candidate {
    // As many copies of keys as the size of x says.
    let copies = model.blocks.kinds().iter().any(|block| c.size(Axis::X) > block.attention.kv_heads);
    let size = |axis: Axis| match axis {
        Axis::X if copies => c.size(axis),
        _ => c.size(axis).min(2),
    };
    Candidate {
        sizes: Axis::ALL.map(size),
        inside: [1; Axis::COUNT],
        microbatch: 1,
        summa_panels: if c.linear == Linear::Summa { c.summa_panels } else { 1 },
        schedule: if c.schedule == Schedule::ZeroBubble { c.schedule } else { Schedule::OneForwardOneBackward },
        chunks: 1,
        recompute: if let Recompute::Full { .. } = c.recompute { Recompute::Full { every: 1 } } else { c.recompute },
        ..*c
    }
}

/// Most blocks of pieces that are measured. Panels are many operations, which hide little behind each other: two will do.
fn most_blocks(c: &Candidate) -> usize {
    if c.linear == Linear::Summa { 2 } else { 3 }
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

/// Classes of a rank's parameters, by which gradients and states it holds for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    /// Those whose gradients products give.
    OfProducts,
    /// The same of experts, of which fewer ranks have copies.
    OfExperts,
    /// Vectors and tables of positions.
    Others,
    /// Those of pruned weights, of which there is nothing else.
    Pruned,
    /// What is kept of these.
    Kept,
    /// Biases of routers, which have no optimizer's states.
    Untrained,
}

impl Elements {
    pub const ALL: [Self; 6] =
        [Self::OfProducts, Self::OfExperts, Self::Others, Self::Pruned, Self::Kept, Self::Untrained];
}

/// Shapes of parameters with the class of each.
pub(super) type Parameters = Vec<(ValueId, Elements)>;

/// The pieces of a structure.
#[derive(Debug, Clone)]
pub(super) struct Template {
    /// The shapes of values and storages, in the sizes of the candidate that was measured last.
    pub shapes: StageProgram,
    pub script: Arc<Script>,
    /// What is known of that candidate.
    pub known: Option<Known>,
}

/// What the pieces of a structure take in some sizes, wherever ranks lie.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub sizes: [usize; Axis::COUNT],
    pub microbatch: usize,
    /// Whether what a ZeRO stage may cut shorter takes nothing.
    pub of_any_zero: bool,
    pub runs: Arc<[Run]>,
    pub transfers: Vec<Transfer>,
    /// Of every storage.
    pub bytes: Vec<f64>,
}

impl Known {
    pub fn is_of(&self, c: &Candidate, of_any_zero: bool) -> bool {
        (self.sizes, self.microbatch, self.of_any_zero) == (c.sizes, c.microbatch, of_any_zero)
    }
}

/// What the pieces of a structure do, in shapes.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub told: Told,
    /// Computations that a ZeRO stage may cut shorter.
    pub shortened: Vec<usize>,
    /// Computations that follow each other.
    pub runs: Numbered<Vec<usize>>,
    /// Most collectives that are told apart in a tape.
    pub flights: usize,
    /// By the kind of all their blocks.
    pub kinds: Vec<Alike>,
}

/// Pieces whose blocks are all of one kind.
#[derive(Debug, Default)]
pub(super) struct Alike {
    /// By place (the first, those between, the last; or the only one): those at the ends with no block, with one, ..., the
    /// others with one block, with two, ...
    pub places: Vec<Vec<Piece>>,
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
        let kinds = problem.by_work.blocks.kinds().len();
        let probes = |kind| (1..=most_blocks(c)).map(move |blocks| probe(problem, c, kind, blocks));
        let probes = (0..kinds).map(|kind| probes(kind).collect()).collect::<Result<Vec<Vec<_>>, _>>()?;
        let mut telling = Telling {
            shapes: Shapes::like(&probes[0][0].kinds[0]),
            script: Script::default(),
            hosted: problem.framework.host_seconds > 0.0,
            differ: kinds > 1,
        };
        for probes in &probes {
            let mut alike = Alike::default();
            for (place, stage) in probes[0].kinds.iter().enumerate() {
                alike.places.push(probes.iter().map(|probe| telling.piece(&probe.kinds[place])).collect());
                telling.parameters(stage, &mut alike);
            }
            telling.script.kinds.push(alike);
        }
        Ok(Self { shapes: telling.shapes.program, script: Arc::new(telling.script), known: None })
    }
}

/// A program of a candidate's structure and sizes with pieces of so many blocks of a kind; the ends of a pipeline have one
/// less. Its stages are of three kinds, or it has one.
fn probe(problem: &Problem, c: &Candidate, kind: usize, blocks: usize) -> Result<FoldedProgram, PriceError> {
    let stages = if c.size(Axis::Pipe) > 1 { STAGES } else { 1 };
    let mut sizes = c.sizes;
    sizes[Axis::Pipe as usize] = stages;
    let mut stage_blocks = vec![blocks - 1; stages];
    stage_blocks[stages / 2] = blocks;
    let alike = problem.by_work.blocks.of_kind(kind, stage_blocks.iter().sum());
    let model = Model { blocks: alike, ..problem.by_work.clone() };
    let canonical = structure(&problem.by_work, c);
    let layout = Layout {
        grid: Grid::of_sizes(sizes)?,
        schedule: canonical.schedule,
        recompute: canonical.recompute,
        chunks: 1,
        microbatch_group: stages,
        stage_blocks,
        // A microbatch for every stage.
        global_batch: c.batch_shares() * c.microbatch * STAGES,
        ..c.without_pieces(problem.global_batch, problem.seq_len)?
    };
    Ok(problem.folded_of(&model, &layout)?)
}

/// Whether a ZeRO stage may cut what the operation does shorter: where gradients of weights are scattered over data, shards of
/// shards are added to them, and panels of products are stored as they are sent instead of as gradients are kept. All else that
/// a stage does in passes it does beside what is done without it.
pub(super) fn is_shortened(op: &Op) -> bool {
    op.weight_gradient && matches!(op.operation, Operation::Accumulate(_) | Operation::StorePanel(_))
}

/// Pieces while they are told.
struct Telling {
    shapes: Shapes,
    script: Script,
    /// Whether the host's time counts.
    hosted: bool,
    /// Whether blocks have others beside them than those of their probes.
    differ: bool,
}

impl Telling {
    fn parameters(&mut self, stage: &StageProgram, alike: &mut Alike) {
        let [mut block, mut ends] = [Parameters::new(), Parameters::new()];
        for parameter in &stage.parameters {
            let sharding = &stage.value(parameter.value).sharding;
            let list = if matches!(parameter.layer, Layer::Block(_)) { &mut block } else { &mut ends };
            let elements = match parameter.compressed {
                Some(_) => Elements::Pruned,
                None if !parameter.is_trained() => Elements::Untrained,
                None if !sharding.blocks.is_empty() => Elements::OfExperts,
                None if sharding.is_of_tiles() => Elements::OfProducts,
                None => Elements::Others,
            };
            list.push((self.shapes.value(stage, parameter.value), elements));
            list.extend(parameter.compressed.map(|kept| (self.shapes.value(stage, kept), Elements::Kept)));
        }
        if !block.is_empty() {
            alike.block = block;
        }
        alike.ends.push(ends);
    }

    fn piece(&mut self, stage: &StageProgram) -> Piece {
        let chunk = &stage.chunks[0];
        let (storages, values) = self.shapes.all(stage);
        let passes = chunk.sections().map(|section| self.tape(stage, section, &values));
        let update = self.tape(stage, &stage.update, &values);
        let sends = chunk.forward.sends.iter().map(|message| values[message.value.0]).collect();
        Piece { passes, update, sends, holdings: Holdings::new(stage, chunk, &storages) }
    }

    /// What a step's first microbatch alone does is left out.
    fn tape(&mut self, stage: &StageProgram, section: &Section, shapes: &[ValueId]) -> Tape {
        let mut tape = Tape::new();
        let mut run = Vec::new();
        let mut flights: Numbered<StorageId> = Numbered::default();
        let mut scalars = stage.storages.len();
        let shape = |value: ValueId| shapes[value.0];
        let mut layer = None;
        let hidden = if self.differ { hidden_by_neighbours(stage, section) } else { BTreeSet::new() };
        for (at, op) in section.ops.iter().enumerate().filter(|(_, op)| op.when == When::Always) {
            if hidden.contains(&at) {
                continue;
            }
            let grid = stage.grid();
            let begins = match op.operation {
                Operation::Issue(collective) => collective.size(grid) > 1,
                Operation::ReduceScalar(kind::ReduceScalar { axes, .. }) => grid.size_of(axes) > 1,
                operation => operation.group().computes(),
            };
            if self.hosted && begins && layer.replace(op.layer) != Some(op.layer) {
                self.end_run(&mut run, &mut tape);
                tape.push(Task::Layer);
            }
            match op.operation {
                Operation::Issue(collective) if collective.size(grid) > 1 => {
                    self.end_run(&mut run, &mut tape);
                    let flight = flights.number(stage.value(collective.output).storage) as u32;
                    let collective =
                        self.script.told.collectives.number(Communication::of(stage, op.layer, collective, shape));
                    tape.push(Task::Issue { collective: collective as u32, flight });
                }
                Operation::Wait(collective) if collective.size(grid) > 1 => {
                    self.end_run(&mut run, &mut tape);
                    let flight = flights.number(stage.value(collective.output).storage) as u32;
                    tape.push(Task::Wait { flight });
                }
                Operation::ReduceScalar(kind::ReduceScalar { axes, scalar }) if grid.size_of(axes) > 1 => {
                    self.end_run(&mut run, &mut tape);
                    // Probes have other blocks than the model, and tell of their experts.
                    let least = match scalar {
                        Scalar::Routers { .. } => Scalar::Routers { experts: 0 },
                        scalar => scalar,
                    };
                    let collective = Communication::Scalars(axes, least.elements());
                    let collective = self.script.told.collectives.number(collective) as u32;
                    let flight = flights.number(StorageId(scalars)) as u32;
                    tape.extend([Task::Issue { collective, flight }, Task::Wait { flight }]);
                    scalars += 1;
                }
                operation if operation.group().computes() => {
                    let work = self.script.told.works.number(operation.anywhere().with_values(shape));
                    if is_shortened(op) && !self.script.shortened.contains(&work) {
                        self.script.shortened.push(work);
                    }
                    run.push(work);
                }
                _ => {}
            }
        }
        self.end_run(&mut run, &mut tape);
        tape.shrink_to_fit();
        self.script.flights = self.script.flights.max(flights.all.len());
        tape
    }

    fn end_run(&mut self, run: &mut Vec<usize>, tape: &mut Tape) {
        if !run.is_empty() {
            tape.push(Task::Run(self.script.runs.number(std::mem::take(run)) as u32));
        }
    }
}

/// Where collectives are issued and waited for that another layer may hide: it computes meanwhile, or it waits for them. What is
/// left of a layer it does whatever layers are beside it, so that the layers of a piece add up.
fn hidden_by_neighbours(stage: &StageProgram, section: &Section) -> BTreeSet<usize> {
    let mut hidden = BTreeSet::new();
    // By storage: where a collective was issued, in which layer, and whether others have computed or waited since.
    let mut under_way: BTreeMap<StorageId, (usize, Layer, bool)> = BTreeMap::new();
    for (at, op) in section.ops.iter().enumerate() {
        match op.operation {
            Operation::Issue(collective) => {
                under_way.insert(stage.value(collective.output).storage, (at, op.layer, false));
            }
            Operation::Wait(collective) => match under_way.remove(&stage.value(collective.output).storage) {
                Some((issued, layer, passed)) if passed || layer != op.layer => hidden.extend([issued, at]),
                Some(_) => {}
                None => hidden.extend([at]),
            },
            _ => {}
        }
        // All else takes time, waits too.
        if !matches!(op.operation, Operation::Issue(_)) {
            under_way.values_mut().for_each(|(_, layer, passed)| *passed |= *layer != op.layer);
        }
    }
    hidden.extend(under_way.into_values().map(|(issued, ..)| issued));
    hidden
}
