//! The price of a step: what its stages take, the pipeline, the update.

use quadrille_spec::{Axis, AxisSet, KeepWeights, Recompute, Schedule, Zero};

use super::block::{Block, Passes};
use super::cost::Cost;
use super::network::{Link, Placement};
use super::parameters::Sharding;
use super::pipeline::Pipeline;
use super::stages::Stages;
use super::{Candidate, Parts, Price, Problem};

/// A candidate with all that its parts are priced from.
pub(super) struct Step<'a> {
    pub problem: &'a Problem,
    pub c: &'a Candidate,
    pub block: &'a Block,
    pub stages: Stages,
    pub microbatches: usize,
    pub sharding: Sharding,
    pub placement: Placement,
    /// The ranks that hold the same parameters.
    pub replicas: Link,
    pub replicating: AxisSet,
    /// The ranks over which the gradients of vectors are summed beside weights' over all that ZeRO does not scatter: on the
    /// residual stream, and inside blocks.
    pub vectors: [Link; 2],
    /// Whether embedding and head share a table on the same rank.
    pub is_tied: bool,
    /// Seconds of scattering gradients over data after every microbatch, of a block and of a table.
    scattered: [f64; 2],
}

impl Problem {
    /// The price of a step, from that of the candidate's [`Block`].
    pub fn price(&self, c: &Candidate, block: &Block) -> Price {
        Step::new(self, c, block).price()
    }
}

impl<'a> Step<'a> {
    pub fn new(problem: &'a Problem, c: &'a Candidate, block: &'a Block) -> Self {
        let placement = Placement::of(&problem.network, c);
        let replicating = Axis::Context.only().union(Axis::Data.only());
        let stages = Stages::of(&problem.model, c);
        let sharding = Sharding::of(c);
        let vectors = block.sizes.vector_groups().map(|group| {
            let replicas = if sharding.zero == Zero::Off { replicating } else { AxisSet::EMPTY };
            Link::new(&problem.network, &placement, c, replicas.union(group))
        });
        let mut step = Self {
            problem,
            c,
            block,
            stages,
            microbatches: c.microbatches(problem.global_batch),
            sharding,
            placement,
            replicas: Link::new(&problem.network, &placement, c, replicating),
            replicating,
            vectors,
            is_tied: problem.model.tied_head && stages.stages == 1,
            scattered: [0.0; 2],
        };
        if step.sharding.zero == Zero::Gradients {
            step.scattered = step.scatter_seconds();
        }
        step
    }

    /// Embedding and head of the candidate.
    pub fn ends(&self) -> [&'a Passes; 2] {
        if self.is_tied {
            [&self.block.tied[0], &self.block.tied[1]]
        } else {
            [&self.block.embedding, &self.block.head]
        }
    }

    /// Segments of recomputation of a stage; without it every block is one.
    fn segments(&self, stage: usize) -> usize {
        let Recompute::Full { every } = self.c.recompute else { return self.stages.blocks_on(stage) };
        let pieces = (0..self.stages.chunks).map(|chunk| chunk * self.stages.stages + stage);
        pieces.map(|piece| self.stages.blocks_of(piece).div_ceil(every)).sum()
    }

    /// What a microbatch takes on a stage, forward and backward, and of the computation what gives gradients of weights.
    fn stage(&self, stage: usize) -> StageWork {
        let Block { block, first, drain, amid, receive, send, .. } = self.block;
        let (is_first, is_last) = (self.stages.is_first(stage), self.stages.is_last(stage));
        let blocks = self.stages.blocks_on(stage) as f64;
        let before = (self.stages.chunks - usize::from(is_first)) as f64;
        let after = (self.stages.chunks - usize::from(is_last)) as f64;
        let again = blocks - self.segments(stage) as f64;
        let mut work = StageWork::default();
        let [embedding, head] = self.ends();
        let ends = [(is_first, embedding), (is_last, head)];
        let here = ends.into_iter().filter(|(here, _)| *here);
        for (passes, times) in here.map(|(_, end)| (end, 1.0)).chain([(block, blocks)]) {
            work.forward += passes.forward.times(times);
            work.backward += passes.backward.times(times);
            work.weight_gradient += passes.weight_gradient.times(times);
            work.hidden.iter_mut().zip(passes.hidden).for_each(|(sum, more)| *sum += times * more);
        }
        work.forward += receive.times(before);
        work.forward += send.times(after);
        work.backward += receive.times(after);
        work.backward += send.times(before);
        work.backward += amid.times(again);
        work.forward = work.forward.exposing(Axis::Z, before * first[0]);
        work.backward = work.backward.exposing(Axis::Z, after * first[1] + before * drain);
        if self.block.sizes.gathers_received_again() {
            work.backward += receive.times(before);
        }
        self.scatter(stage, blocks, &mut work);
        if self.c.schedule == Schedule::ZeroBubble {
            work.backward.taken += self.block.copies.times(2.0 * blocks);
        }
        work
    }

    /// ZeRO's scattering of gradients after every microbatch. With ORS it runs under the backward pass but for the last
    /// block's, and the one over z that comes before it is waited for.
    fn scatter(&self, stage: usize, blocks: f64, work: &mut StageWork) {
        let [block, table] = self.scattered;
        if block == 0.0 {
            return;
        }
        let tables = f64::from(u8::from(self.stages.is_first(stage)) + u8::from(self.stages.is_last(stage)));
        let tables = if self.is_tied { 1.0 } else { tables };
        let all = blocks * block + tables * table;
        let exposed = if self.c.overlap.reduce_scatter {
            let last = if self.stages.is_first(stage) { table } else { block };
            last.max(all - work.backward.seconds())
        } else {
            all
        };
        work.backward = work.backward.exposing(self.outermost(self.replicating), exposed);
        if self.c.overlap.reduce_scatter {
            let over_z = blocks * self.block.scatter_once[0] + tables * self.block.scatter_once[1];
            work.backward = work.backward.exposing(Axis::Z, over_z);
        }
    }

    /// The outermost axis of a set of those above 1.
    pub fn outermost(&self, axes: AxisSet) -> Axis {
        axes.iter().rev().find(|axis| self.c.size(*axis) > 1).unwrap_or(Axis::Data)
    }

    /// The stages among which the busiest and the fullest are: the ends, and the first ones with most blocks.
    pub fn candidates(&self) -> [usize; 4] {
        let last = self.stages.stages - 1;
        [0, 1.min(last), self.stages.first_of_most(), last]
    }

    fn price(&self) -> Price {
        let works = self.candidates().map(|stage| (stage, self.stage(stage)));
        let seconds = works.map(|(stage, work)| (stage, self.split(&work)));
        let total = |[f, b, w]: [f64; 3]| f + b + w;
        let mut busiest = 0;
        for index in 1..seconds.len() {
            if total(seconds[index].1) > total(seconds[busiest].1) {
                busiest = index;
            }
        }
        let pipeline = self.pipeline(&seconds, busiest);
        let work = &works[busiest].1;
        let microbatches = self.microbatches as f64;
        let (messages, whole) = (pipeline.messages(), pipeline.without_messages());
        let update = self.update(&seconds);
        let mut cost = Cost::default();
        cost += work.forward;
        cost += work.backward;
        if self.c.schedule == Schedule::ZeroBubble {
            // Nothing hides the reductions of input gradients.
            cost.exposed.iter_mut().zip(work.hidden).for_each(|(sum, more)| *sum += more);
        }
        let cost = cost.times(microbatches);
        let mut parts = Parts {
            compute: cost.taken.compute,
            memory_bound: cost.taken.memory,
            launch: cost.taken.launch,
            communication: cost.exposed,
            bubble: (whole - cost.seconds()).max(0.0),
            optimizer: update.optimizer,
            data_loading: self.problem.framework.data_seconds,
        };
        parts.communication[Axis::Pipe as usize] += messages + update.between_stages;
        parts.communication[self.outermost(self.replicating) as usize] += update.replicas;
        parts.communication[Axis::Z as usize] += self.gathered_once(works[busiest].0, work);
        Price {
            seconds: parts.total(),
            parts,
            memory: self.memory(),
            model_flops: self.problem.model_flops,
            executed_flops: self.executed_flops(),
        }
    }

    /// Forward, backward and put-off weight gradients in seconds.
    fn split(&self, work: &StageWork) -> [f64; 3] {
        let (forward, backward) = (work.forward.seconds(), work.backward.seconds());
        if self.c.schedule != Schedule::ZeroBubble {
            return [forward, backward, 0.0];
        }
        let weights = work.weight_gradient.seconds();
        [forward, backward - weights + work.hidden.iter().sum::<f64>(), weights]
    }

    fn pipeline(&self, seconds: &[(usize, [f64; 3])], busiest: usize) -> Pipeline {
        let (stage, own) = seconds[busiest];
        let stages = self.stages.stages as f64;
        let longest = [0, 1].map(|pass| seconds.iter().map(|(_, all)| all[pass]).fold(0.0, f64::max));
        // Sums over all stages but the busiest: what differs among them are blocks and ends.
        let per_block = self.split_passes(&self.block.block, self.c.schedule);
        let (blocks, chunks) = (self.problem.model.layers as f64, self.c.chunks as f64);
        let elsewhere = match self.c.chunks {
            1 => blocks - self.stages.blocks_on(stage) as f64,
            _ => (stages - 1.0) * blocks / (stages * chunks),
        };
        let mut others = per_block.map(|seconds| elsewhere * seconds);
        let between = [self.block.receive, self.block.send].map(|cost| cost.seconds()).iter().sum::<f64>();
        others[0] += (stages - 1.0) * (between + self.block.first[0]);
        others[1] += (stages - 1.0) * (between + self.block.first[1]);
        for (here, passes) in [self.stages.is_first(stage), self.stages.is_last(stage)].into_iter().zip(self.ends()) {
            if !here {
                let end = self.split_passes(passes, self.c.schedule);
                others.iter_mut().zip(end).for_each(|(sum, more)| *sum += more);
            }
        }
        let bytes = self.block.sizes.message() * self.problem.framework.activation_bytes;
        let link = Link::new(&self.problem.network, &self.placement, self.c, Axis::Pipe.only());
        Pipeline {
            schedule: self.c.schedule,
            stages,
            microbatches: self.microbatches as f64,
            chunks,
            busiest: own,
            others,
            longest,
            message: self.c.overlap_chunks as f64 * link.message_seconds(bytes as f64),
        }
    }

    fn split_passes(&self, passes: &Passes, schedule: Schedule) -> [f64; 3] {
        let [forward, backward] = passes.seconds;
        if schedule != Schedule::ZeroBubble {
            return [forward, backward, 0.0];
        }
        let weights = passes.weight_gradient.seconds();
        [forward, backward - weights + passes.hidden.iter().sum::<f64>(), weights]
    }

    /// Waiting for weights that are gathered once per step: under the first microbatch's forward pass with OAG.
    fn gathered_once(&self, stage: usize, work: &StageWork) -> f64 {
        if self.c.keep_weights == KeepWeights::Use || self.block.sizes.z == 1 {
            return 0.0;
        }
        let [block, table] = self.block.gathers_once;
        let tables =
            usize::from(self.stages.is_first(stage)) + usize::from(self.stages.is_last(stage) && !self.is_tied);
        let all = self.stages.blocks_on(stage) as f64 * block + tables as f64 * table;
        let first = if self.stages.is_first(stage) { table } else { self.block.first_gather };
        if self.c.overlap.all_gather { first.max(all - work.forward.seconds()) } else { all }
    }

    /// FLOPs of all devices.
    fn executed_flops(&self) -> f64 {
        let blocks = self.problem.model.layers;
        let again: usize = match self.c.recompute {
            Recompute::Full { every } if every > 1 => {
                let segments = (0..self.stages.pieces()).map(|piece| self.stages.blocks_of(piece).div_ceil(every));
                blocks - segments.sum::<usize>()
            }
            _ => 0,
        };
        let ends: f64 = [&self.block.embedding, &self.block.head].iter().map(|end| end.flops).sum();
        let pass = blocks as f64 * self.block.block.flops + again as f64 * self.block.amid_flops + ends;
        let ranks = (self.c.devices() / self.stages.stages) as f64;
        pass * self.microbatches as f64 * ranks
    }
}

/// What a microbatch takes on a stage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StageWork {
    forward: Cost,
    backward: Cost,
    weight_gradient: super::rates::Taken,
    hidden: [f64; 6],
}
