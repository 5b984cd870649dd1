//! What a block computes, stands still for and sends in the mean: the roughest bound, of programs of a single block, of each
//! kind.

use quadrille_spec::{Axis, Layout, Linear, Model, Recompute, Schedule};
use quadrille_step::{Layer, Op, Operation, StageProgram, ValueId, When};

use super::shapes::{Shapes, resize};
use super::stalls::stalls;
use super::template::is_shortened;
use super::told::{Communication, Links, Told, Transfer};
use crate::native::machine::NativeMachine;
use crate::native::{Candidate, PriceError, Problem};

/// What candidates have in common whose blocks compute and send the same but for sizes.
pub(super) fn alike(c: &Candidate) -> Candidate {
    let Candidate { sizes: [x, y, z, context, expert, ..], recompute, .. } = *c;
    Candidate {
        sizes: [x.min(2), y.min(2), z.min(2), context.min(2), expert.min(2), 1, 1],
        activations: c.activations,
        linear: c.linear,
        summa_panels: if c.linear == Linear::Summa { c.summa_panels } else { 1 },
        overlap: c.overlap,
        // A weight that the passes of all chunks use may be gathered less often.
        overlap_chunks: c.overlap_chunks,
        recompute: if let Recompute::Full { .. } = recompute { Recompute::Full { every: 1 } } else { recompute },
        keep_communicated: c.keep_communicated,
        keep_weights: c.keep_weights,
        experts_over: c.experts_over,
        dispatch: c.dispatch,
        ..Candidate::PLAIN
    }
}

/// The mean of all blocks.
#[derive(Debug)]
pub(super) struct Sketch {
    /// The shapes of values, in the sizes of the candidate that was asked about last.
    shapes: StageProgram,
    counted: Counted,
    /// What is known of that candidate, wherever its ranks lie.
    known: Option<Known>,
}

/// The mean of all blocks in some sizes.
#[derive(Debug)]
struct Known {
    sizes: [usize; Axis::COUNT],
    microbatch: usize,
    /// Seconds of all computations.
    computed: f64,
    transfers: Vec<Transfer>,
}

/// The computations and collectives of a block, in the mean.
#[derive(Debug, Default)]
struct Counted {
    told: Told,
    /// How often there is each, by number.
    works: Vec<f64>,
    collectives: Vec<f64>,
    /// How often it stands still for each collective.
    stalls: Vec<f64>,
}

impl Sketch {
    /// Of the blocks of a candidate.
    ///
    /// # Errors
    /// A candidate that has no program.
    pub fn new(problem: &Problem, c: &Candidate) -> Result<Self, PriceError> {
        let layout = layout(problem, c)?;
        let probe = |(kind, (count, _))| {
            let model = Model { blocks: problem.by_work.blocks.of_kind(kind, 1), ..problem.by_work.clone() };
            let share = count as f64 / problem.by_work.layers() as f64;
            problem.folded_of(&model, &layout).map(|program| (share, program))
        };
        let probes = problem.by_work.blocks.counts().enumerate().map(probe).collect::<Result<Vec<_>, _>>()?;
        let mut shapes = Shapes::like(&probes[0].1.kinds[0]);
        let mut counted = Counted::default();
        for (share, program) in &probes {
            let stage = &program.kinds[0];
            for section in stage.chunks.iter().flat_map(|chunk| chunk.sections()) {
                // One chunk may compute while another waits, and blocks of other kinds decide which.
                let stalls = if c.overlap_chunks > 1 { Vec::new() } else { stalls(stage, section) };
                for (at, op) in section.ops.iter().enumerate() {
                    counted.add(op, *share, stage, &mut shapes, stalls.contains(&at));
                }
            }
        }
        Ok(Self { shapes: shapes.program, counted, known: None })
    }

    /// Seconds that a block of the candidate computes and stands still, or sends on one stream, for a microbatch, whichever is
    /// longest, all passes together; the mean of all blocks.
    ///
    /// # Errors
    /// Sizes that are no grid.
    pub fn seconds(&mut self, problem: &Problem, c: &Candidate) -> Result<f64, PriceError> {
        let machine = NativeMachine::of(problem, *c).of_any_zero();
        // Data and pipe change nothing.
        let mut sizes = c.sizes;
        (sizes[Axis::Data as usize], sizes[Axis::Pipe as usize]) = (1, 1);
        let known = match self.known.take() {
            Some(known) if (known.sizes, known.microbatch) == (sizes, c.microbatch) => known,
            _ => self.size(problem, sizes, c.microbatch, &machine)?,
        };
        let mut streams = Vec::new();
        let mut links = Links::new(&machine);
        let mut computed = known.computed;
        let counted = self.counted.collectives.iter().zip(&self.counted.stalls);
        for ((times, stalls), transfer) in counted.zip(&known.transfers) {
            let (seconds, stream) = links.seconds(transfer);
            streams.resize(streams.len().max(stream + 1), 0.0);
            streams[stream] += times * seconds;
            computed += stalls * seconds;
        }
        let longest = streams.into_iter().fold(computed, f64::max);
        self.known = Some(known);
        Ok(longest)
    }

    /// What there is wherever ranks lie.
    fn size(
        &mut self,
        problem: &Problem,
        sizes: [usize; Axis::COUNT],
        microbatch: usize,
        machine: &NativeMachine,
    ) -> Result<Known, PriceError> {
        resize(&mut self.shapes, problem, sizes, microbatch)?;
        let Counted { told, works, .. } = &self.counted;
        let each = told.computed(&self.shapes, machine).works;
        let computed = works.iter().zip(&each).map(|(times, seconds)| times * seconds).sum();
        Ok(Known { sizes, microbatch, computed, transfers: told.transfers(&self.shapes, machine) })
    }
}

impl Counted {
    /// An operation that so many of all blocks have, and whether they stand still in it.
    fn add(&mut self, op: &Op, share: f64, stage: &StageProgram, shapes: &mut Shapes, stands_still: bool) {
        if op.when != When::Always || is_shortened(op) || !matches!(op.layer, Layer::Block(_)) {
            return;
        }
        let operands = op.operation.operands();
        let shapes: Vec<(ValueId, ValueId)> =
            operands.all().iter().map(|value| (*value, shapes.value(stage, *value))).collect();
        let shape =
            |value: ValueId| shapes.iter().find(|(known, _)| *known == value).map_or(value, |(_, shape)| *shape);
        match op.operation {
            Operation::Issue(collective) if collective.size(stage.grid()) > 1 => {
                let number = self.collective(Communication::of(stage, op.layer, collective, shape));
                self.collectives[number] += share;
            }
            Operation::Wait(collective) if stands_still => {
                let number = self.collective(Communication::of(stage, op.layer, collective, shape));
                self.stalls[number] += share;
            }
            operation if operation.group().computes() => {
                let number = self.told.works.number(operation.anywhere().with_values(shape));
                self.works.resize(self.told.works.all.len(), 0.0);
                self.works[number] += share;
            }
            _ => {}
        }
    }

    /// The number of a collective.
    fn collective(&mut self, collective: Communication) -> usize {
        let number = self.told.collectives.number(collective);
        for times in [&mut self.collectives, &mut self.stalls] {
            times.resize(self.told.collectives.all.len(), 0.0);
        }
        number
    }
}

/// A layout of a single stage and block.
fn layout(problem: &Problem, c: &Candidate) -> Result<Layout, PriceError> {
    let mut sizes = c.sizes;
    (sizes[Axis::Data as usize], sizes[Axis::Pipe as usize]) = (1, 1);
    let plain = alike(c);
    let candidate = Candidate { sizes, microbatch: c.microbatch, ..plain };
    Ok(Layout {
        stage_blocks: vec![1],
        schedule: Schedule::OneForwardOneBackward,
        global_batch: candidate.batch_shares() * c.microbatch,
        ..candidate.without_pieces(c.microbatch, problem.seq_len)?
    })
}
