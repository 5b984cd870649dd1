//! What comes after the last microbatch: reductions over data, the gradient norm, the optimizer, ZeRO's gathers.

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Zero};

use super::Hiding;
use super::network::Link;
use super::parameters::{Kind, Parameter};
use super::step::Step;

/// Bytes of a scalar that is reduced in f64.
const SCALAR_BYTES: f64 = 8.0;

/// Seconds that the update adds to a step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Update {
    /// Waiting for gradients and updated weights over the ranks that hold the same parameters.
    pub replicas: f64,
    /// Waiting for the other copy of a tied table.
    pub between_stages: f64,
    /// The optimizer and the norm.
    pub optimizer: f64,
}

/// What a stage reduces and updates.
#[derive(Default)]
struct Load {
    /// Seconds of reductions over the ranks that hold the same parameters, and of those of vectors over others.
    weights: f64,
    vectors: [f64; 2],
    /// Seconds of gathers of updated parameters.
    gathers: f64,
    /// Elements that the optimizer updates, and in how many pieces.
    updated: u64,
    pieces: u64,
}

impl Step<'_> {
    /// Seconds of scattering the gradients of a block, and of a table, over the ranks that hold the same parameters.
    pub fn scatter_seconds(&self) -> [f64; 2] {
        let seconds =
            |parameter: Parameter| self.reduction(CollectiveKind::ReduceScatter, self.sharding.padded(parameter));
        let mut block = 0.0;
        self.block.sizes.block_parameters(|parameter| {
            if parameter.kind == Kind::Weight {
                block += seconds(parameter);
            }
        });
        let sizes = &self.block.sizes;
        [block, seconds(Parameter { kind: Kind::Weight, elements: sizes.table / sizes.z })]
    }

    fn reduction(&self, kind: CollectiveKind, elements: u64) -> f64 {
        self.replicas.seconds(kind, (elements * self.problem.framework.states.sent_gradient) as f64)
    }

    /// The update of the whole step, from what a microbatch takes on some stages.
    pub fn update(&self, stages: &[(usize, [f64; 3])]) -> Update {
        let mut update = Update::default();
        let mut end = 0.0;
        // Stages that are further down the pipeline have done earlier.
        for &(stage, [forward, backward, _]) in stages {
            let early = stage as f64 * backward;
            let load = self.load(stage);
            let blocks = self.stages.blocks_on(stage).max(1) as f64;
            let reducing = self.hidden_reduction(&load, backward, blocks);
            let optimizer = self.optimizer(&load);
            let gathering = self.gathering(&load, forward, optimizer, blocks);
            let tied = if self.shares_table(stage) { self.tied_seconds() } else { 0.0 };
            let waits = reducing + gathering + tied - early;
            if optimizer + waits.max(0.0) >= end {
                end = optimizer + waits.max(0.0);
                let between_stages = tied.min(waits.max(0.0));
                update = Update { replicas: waits.max(0.0) - between_stages, between_stages, optimizer };
            }
        }
        let world = Link::new(&self.problem.network, &self.placement, self.c, AxisSet::WORLD);
        update.optimizer += 2.0 * world.seconds(CollectiveKind::AllReduce, SCALAR_BYTES);
        update
    }

    /// Whether the stage has one of two copies of a tied table.
    fn shares_table(&self, stage: usize) -> bool {
        let ends = self.stages.is_first(stage) || self.stages.is_last(stage);
        self.problem.model.tied_head && self.stages.stages > 1 && ends
    }

    /// Seconds in which the two copies' gradients are summed.
    fn tied_seconds(&self) -> f64 {
        let sizes = &self.block.sizes;
        let table = Parameter { kind: Kind::Weight, elements: sizes.table / sizes.z };
        let shards = self.sharding.shards_gradient(table);
        let elements = if shards { self.sharding.shard(table) } else { table.elements };
        let bytes = (elements * self.problem.framework.states.sent_gradient) as f64;
        let pipe = Link::new(&self.problem.network, &self.placement, self.c, Axis::Pipe.only());
        pipe.exchange_seconds(bytes)
    }

    fn load(&self, stage: usize) -> Load {
        let sizes = &self.block.sizes;
        let blocks = self.stages.blocks_on(stage) as u64;
        let mut load = Load::default();
        sizes.block_parameters(|parameter| load.add(self, parameter, blocks));
        if self.stages.is_first(stage) {
            sizes.embedding_parameters(|parameter| load.add(self, parameter, 1));
        }
        if self.stages.is_last(stage) {
            sizes.head_parameters(!self.is_tied, |parameter| load.add(self, parameter, 1));
        }
        load
    }

    /// Gradients are reduced after the last microbatch, or under its backward pass but for the last block's.
    fn hidden_reduction(&self, load: &Load, backward: f64, blocks: f64) -> f64 {
        let all = load.weights.max(load.vectors[0]).max(load.vectors[1]);
        let hides = self.problem.framework.reduces_under_backward && self.c.overlap.reduce_scatter;
        if hides { (all / blocks).max(all - backward * (blocks - 1.0) / blocks) } else { all }
    }

    /// Parameters are gathered after the update, or under the next forward pass but for the first block's.
    fn gathering(&self, load: &Load, forward: f64, optimizer: f64, blocks: f64) -> f64 {
        let (all, hidden) = (load.gathers, forward * (blocks - 1.0) / blocks);
        match self.problem.framework.gathers_under_forward {
            Hiding::Always => (all / blocks - optimizer).max(all - optimizer - hidden).max(0.0),
            Hiding::Switched if self.c.overlap.all_gather => (all / blocks).max(all - hidden),
            Hiding::Switched | Hiding::Never => all,
        }
    }

    /// The optimizer reads gradient and states and writes states and weight; where no master weight is among the states
    /// it reads the weight, too. The norm reads the gradient.
    fn optimizer(&self, load: &Load) -> f64 {
        let states = self.problem.framework.states;
        let weight = if states.optimizer >= 12 { states.weight } else { 2 * states.weight };
        let bytes = 2 * states.gradient + 2 * states.optimizer + weight;
        self.problem.rates.traffic((load.updated * bytes) as f64, 2.0 * load.pieces as f64).seconds()
    }
}

impl Load {
    /// So many parameters of one kind and size.
    fn add(&mut self, step: &Step, parameter: Parameter, count: u64) {
        let sharding = &step.sharding;
        self.updated += count * sharding.shard(parameter);
        self.pieces += count;
        let scattered = sharding.zero != Zero::Off;
        let stored = sharding.padded(parameter);
        if scattered {
            let bytes = (stored * step.problem.framework.states.weight) as f64;
            self.gathers += step.bucketed(CollectiveKind::AllGather, bytes * count as f64, count);
        }
        let sent = step.problem.framework.states.sent_gradient;
        let kind = if scattered { CollectiveKind::ReduceScatter } else { CollectiveKind::AllReduce };
        let bytes = (stored * sent * count) as f64;
        let vectors = match parameter.kind {
            Kind::Weight if sharding.shards_gradient(parameter) => return,
            Kind::Weight => None,
            Kind::Stream => Some(0),
            Kind::Inner => Some(1),
        };
        // In buckets, vectors are reduced with weights.
        let buckets = step.problem.framework.gradient_bucket.is_some();
        if scattered || vectors.is_none() || buckets {
            self.weights += step.bucketed(kind, bytes, count);
        }
        if let Some(vectors) = vectors.filter(|_| !buckets) {
            let one = (parameter.elements * sent) as f64;
            self.vectors[vectors] += count as f64 * step.vectors[vectors].seconds(CollectiveKind::AllReduce, one);
        }
    }
}

impl Step<'_> {
    /// Collectives over the ranks that hold the same parameters, one each, or in buckets.
    fn bucketed(&self, kind: CollectiveKind, bytes: f64, count: u64) -> f64 {
        let calls = match self.problem.framework.gradient_bucket {
            None => count as f64,
            Some(bucket) => bytes / bucket as f64,
        };
        if calls == 0.0 { 0.0 } else { calls * self.replicas.seconds(kind, bytes / calls) }
    }
}
