//! The price of a step: what its stages take, the pipeline, the update.

use quadrille_spec::{Axis, AxisSet, KeepWeights, Zero};

use super::block::{Block, Passes};
use super::links::Links;
use super::makeup::Makeup;
use super::parameters::{Parameter, Sharding};
use super::pipeline::Pipeline;
use super::stages::Stages;
use super::{Candidate, Memory, Parts, Price, Problem};

/// What rounding may make of a sum of seconds in another order, relatively.
const ROUNDING: f64 = 1e-9;

/// A candidate with all that its parts are priced from.
pub(super) struct Step<'a> {
    pub problem: &'a Problem,
    pub c: &'a Candidate,
    pub block: &'a Block,
    pub stages: Stages,
    pub microbatches: usize,
    pub sharding: Sharding,
    /// Whether embedding and head share a table on the same rank.
    pub is_tied: bool,
}

impl Problem {
    /// The price of a step, from that of the candidate's [`Block`].
    pub fn price(&self, c: &Candidate, block: &Block) -> Price {
        let step = Step::new(self, c, block);
        let parts = step.parts();
        Price {
            seconds: parts.total(),
            parts,
            memory: step.memory(),
            model_flops: self.model_flops,
            executed_flops: step.executed_flops(),
        }
    }

    /// The memory of the rank that needs most: that of [`Problem::price`] in a fraction of its time.
    pub fn memory(&self, c: &Candidate, block: &Block) -> Memory {
        Step::new(self, c, block).memory()
    }

    /// Seconds that a step takes at least: those of [`Problem::price`] without the update, messages between stages, and
    /// ZeRO's scattering after every microbatch, in a fraction of its time.
    pub fn least_seconds(&self, c: &Candidate, block: &Block) -> f64 {
        Step::new(self, c, block).least_seconds()
    }
}

impl<'a> Step<'a> {
    pub fn new(problem: &'a Problem, c: &'a Candidate, block: &'a Block) -> Self {
        let stages = Stages::of(&problem.model, c);
        Self {
            problem,
            c,
            block,
            stages,
            microbatches: c.microbatches(problem.global_batch),
            sharding: Sharding::of(c),
            is_tied: problem.model.tied_head && stages.stages == 1,
        }
    }

    /// Embedding and head of the candidate.
    pub fn ends(&self) -> [&'a Passes; 2] {
        if self.is_tied {
            [&self.block.tied[0], &self.block.tied[1]]
        } else {
            [&self.block.embedding, &self.block.head]
        }
    }

    /// Tables of a stage.
    pub fn tables(&self, stage: usize) -> usize {
        usize::from(self.stages.is_first(stage)) + usize::from(self.stages.is_last(stage) && !self.is_tied)
    }

    /// Sums over the parameters of a block, of the embedding, and of the final norm and head.
    pub fn sums<T: Default>(&self, add: impl Fn(&mut T, Parameter, u64)) -> [T; 3] {
        let sizes = &self.block.sizes;
        let mut sums: [T; 3] = Default::default();
        let [block, embedding, head] = &mut sums;
        sizes.block_parameters(|parameter, count| add(block, parameter, count));
        sizes.embedding_parameters(|parameter, count| add(embedding, parameter, count));
        sizes.head_parameters(!self.is_tied, |parameter, count| add(head, parameter, count));
        sums
    }

    /// How often a stage has each of them.
    pub fn owners(&self, stage: usize) -> [u64; 3] {
        let [first, last] = [self.stages.is_first(stage), self.stages.is_last(stage)].map(u64::from);
        [self.stages.blocks_on(stage) as u64, first, last]
    }

    /// What a microbatch takes on the stages that matter.
    fn works(&self) -> impl Iterator<Item = Work> {
        self.stages.candidates().map(|stage| {
            let makeup = self.makeup(stage);
            Work { stage, makeup, seconds: self.seconds(&makeup), scattering: Scattering::default() }
        })
    }

    fn least_seconds(&self) -> f64 {
        let microbatches = self.microbatches as f64;
        let longest = self.works().map(|work| work.total()).fold(0.0, f64::max);
        (microbatches * longest + self.problem.framework.data_seconds) * (1.0 - ROUNDING)
    }

    /// The seconds of a step by cause.
    fn parts(&self) -> Parts {
        let links = Links::new(self);
        let mut works = [Work::default(); Stages::MOST_CANDIDATES];
        let mut count = 0;
        let scattered = self.scattered(&links);
        let (mut busiest, mut longest) = (0, [0.0_f64; 2]);
        for mut work in self.works() {
            work.scattering = self.scattering(&work, scattered);
            work.seconds[1] += work.scattering.total();
            if work.total() > works[busiest].total() {
                busiest = count;
            }
            longest = [0, 1].map(|pass| longest[pass].max(work.seconds[pass]));
            works[count] = work;
            count += 1;
        }
        let works = &works[..count];
        let work = &works[busiest];
        // The way through the pipeline that takes longest need not be that of the busiest stage.
        let [flow, flow_with_messages] = self.pipelines(works, longest, &links);
        let update = self.update(works, &links);
        let mut cost = self.cost(&work.makeup);
        let replicating = self.outermost(Links::REPLICATING);
        cost.exposed[replicating as usize] += work.scattering.replicas;
        cost.exposed[Axis::Z as usize] += work.scattering.z;
        let cost = cost.times(self.microbatches as f64);
        let mut parts = Parts {
            compute: cost.taken.compute,
            memory_bound: cost.taken.memory,
            launch: cost.taken.launch,
            communication: cost.exposed,
            bubble: (flow - cost.seconds()).max(0.0),
            optimizer: update.optimizer,
            data_loading: self.problem.framework.data_seconds,
        };
        parts.communication[Axis::Pipe as usize] += flow_with_messages - flow + update.between_stages;
        parts.communication[replicating as usize] += update.replicas;
        parts.communication[Axis::Z as usize] += self.sum_of_stages(works, |work| self.gathered_once(work));
        parts.communication = evened(parts.communication);
        parts
    }

    /// Seconds of scattering gradients over the ranks with the same parameters after every microbatch, of a block and of
    /// a table.
    fn scattered(&self, links: &Links) -> [f64; 2] {
        if self.sharding.zero == Zero::Gradients { self.scatter_seconds(links) } else { [0.0; 2] }
    }

    /// What scattering the gradients of a microbatch adds to a backward pass. ZeRO's over the ranks with the same
    /// parameters runs, with ORS, under the backward pass but for the last block's, and the one over z that comes before it
    /// is waited for. Without ZeRO's, the one over z is part of the block's price.
    fn scattering(&self, work: &Work, [block, table]: [f64; 2]) -> Scattering {
        let (blocks, tables) = (work.makeup.blocks, self.tables(work.stage) as f64);
        let [block_over_z, table_over_z] = self.block.scatter_once;
        let over_z = blocks * block_over_z + tables * table_over_z;
        let all = blocks * block + tables * table;
        match (self.c.overlap.reduce_scatter, self.sharding.zero == Zero::Gradients) {
            (false, _) => Scattering { replicas: all, z: 0.0 },
            (true, false) => Scattering::default(),
            (true, true) => {
                let last = if self.stages.is_first(work.stage) { table } else { block };
                Scattering { replicas: last.max(all - work.seconds[1]), z: over_z }
            }
        }
    }

    /// The sum over all stages, of which those that are neither the first nor the last are taken to be alike.
    fn sum_of_stages(&self, works: &[Work], of: impl Fn(&Work) -> f64) -> f64 {
        let [first, .., last] = works else { return works.iter().map(of).sum() };
        of(first) + of(last) + (self.stages.stages - 2) as f64 * of(&works[1])
    }

    /// The outermost axis of a set of those above 1; without any, that of all: vectors are summed over other axes, too.
    fn outermost(&self, axes: AxisSet) -> Axis {
        let above_one = |axis: &Axis| self.c.size(*axis) > 1;
        let rows = AxisSet::WORLD.without(Axis::Pipe.only());
        axes.iter().rev().find(above_one).or_else(|| rows.iter().rev().find(above_one)).unwrap_or(Axis::Data)
    }

    /// Seconds from the first pass to the last, without and with messages.
    fn pipelines(&self, works: &[Work], longest: [f64; 2], links: &Links) -> [f64; 2] {
        let stages = &self.stages;
        let bytes = self.block.sizes.message() * self.problem.framework.activation_bytes;
        let message = self.c.overlap_chunks as f64 * links.pipe.message_seconds(bytes as f64);
        let scattering = self.sum_of_stages(works, |work| work.scattering.total());
        let all = self.makeup_of_all();
        let mut seconds = [0.0_f64; 2];
        for work in works {
            let each = (scattering - work.scattering.total()) / (stages.stages - 1).max(1) as f64;
            let before = self.makeup_before(work.stage);
            let sides = [(before, work.stage), (all - before - work.makeup, stages.stages - 1 - work.stage)];
            let others = sides.map(|(makeup, count)| {
                let [f, b, w] = self.seconds(&makeup);
                [f, b + count as f64 * each, w]
            });
            let pipeline = Pipeline {
                schedule: self.c.schedule,
                stages: stages.stages as f64,
                microbatches: self.microbatches as f64,
                chunks: stages.chunks as f64,
                stage: work.seconds,
                before: work.stage as f64,
                others,
                longest,
            };
            seconds = [seconds[0].max(pipeline.seconds(0.0)), seconds[1].max(pipeline.seconds(message))];
        }
        seconds
    }

    /// Waiting for weights that are gathered once per step: under the first microbatch's forward pass with OAG.
    fn gathered_once(&self, work: &Work) -> f64 {
        if self.c.keep_weights == KeepWeights::Use || self.block.sizes.z == 1 {
            return 0.0;
        }
        let [block, table] = self.block.gathers_once;
        let all = work.makeup.blocks * block + self.tables(work.stage) as f64 * table;
        let first = if self.stages.is_first(work.stage) { table } else { self.block.first_gather };
        if self.c.overlap.all_gather { first.max(all - work.seconds[0]) } else { all }
    }

    /// FLOPs of all devices.
    fn executed_flops(&self) -> f64 {
        let ranks = (self.c.devices() / self.stages.stages) as f64;
        self.flops(&self.makeup_of_all()) * self.microbatches as f64 * ranks
    }
}

/// Laps tell by differences which axis is waited for; where collectives of several axes share a stream, one axis may be told
/// too much and another less than nothing. What is below zero is taken from the others by their size, as far as they go.
fn evened(seconds: [f64; 6]) -> [f64; 6] {
    let owed: f64 = seconds.iter().map(|each| each.min(0.0)).sum();
    let had: f64 = seconds.iter().map(|each| each.max(0.0)).sum();
    let left = if had > 0.0 { (had + owed).max(0.0) / had } else { 0.0 };
    seconds.map(|each| each.max(0.0) * left)
}

/// What a microbatch takes on a stage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    pub stage: usize,
    pub makeup: Makeup,
    /// Forward, backward, and weight gradients that are put off.
    pub seconds: [f64; 3],
    scattering: Scattering,
}

impl Work {
    fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }
}

/// Seconds of a backward pass in which the scattering of gradients is waited for.
#[derive(Debug, Clone, Copy, Default)]
struct Scattering {
    replicas: f64,
    z: f64,
}

impl Scattering {
    fn total(&self) -> f64 {
        self.replicas + self.z
    }
}
