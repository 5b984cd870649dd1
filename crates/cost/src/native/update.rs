//! What comes after the last microbatch: reductions over data, the gradient norm, the optimizer, ZeRO's gathers.

use std::ops::AddAssign;

use quadrille_spec::{CollectiveKind, Zero};

use super::Hiding;
use super::links::Links;
use super::parameters::{Kind, Parameter};
use super::step::{Step, Work};

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

/// What some parameters take in the update.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// Seconds of reductions over the ranks that hold the same parameters, and of those over
    /// `Sizes::row_groups`.
    weights: f64,
    rows: [f64; 3],
    /// Seconds of gathers of updated parameters.
    gathers: f64,
    /// Elements that the optimizer updates, and in how many pieces.
    updated: f64,
    pieces: f64,
}

impl Step<'_> {
    /// Seconds of scattering the gradients of a block, and of a table, over the ranks that hold the same parameters.
    pub fn scatter_seconds(&self, links: &Links) -> [f64; 2] {
        let sizes = &self.block.sizes;
        let seconds = |elements: u64| {
            let parameter = Parameter { kind: Kind::Weight, elements: elements / sizes.z };
            let bytes = self.sharding.held(parameter).padded * self.problem.framework.states.sent_gradient;
            links.replicas.seconds(CollectiveKind::ReduceScatter, bytes as f64)
        };
        let block = sizes.linears().iter().map(|linear| seconds(linear.tile())).sum();
        [block, seconds(sizes.table)]
    }

    /// The update of the whole step, from what a microbatch takes on some stages: the latest reduction of gradients, the
    /// norm, then the optimizer until the next step can go on.
    pub fn update(&self, works: &[Work], links: &Links) -> Update {
        let tied = self.tied_seconds(links);
        let loads = self.sums(|load: &mut Load, parameter, count| self.load(load, links, parameter, count as f64));
        let (mut reduced, mut exchanged, mut ready, mut optimizer) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        for work in works {
            let [forward, backward, _] = work.seconds;
            let stage = work.stage as f64;
            let mut load = Load::default();
            for (count, each) in self.owners(work.stage).into_iter().zip(loads) {
                load += each.times(count as f64);
            }
            let blocks = work.makeup.blocks.max(1.0);
            // Stages that are further down the pipeline have done earlier, and begin the next step later.
            let early = stage * backward;
            let reducing = self.hidden_reduction(&load, backward, blocks);
            reduced = reduced.max(reducing - early);
            if self.shares_table(work.stage) {
                // The table is reduced when it has been exchanged; the others meanwhile, if they have a stream of their own.
                let table = if self.stages.is_first(work.stage) { loads[1].weights } else { loads[2].weights };
                // On one stream all of them follow each other.
                let rest = if self.problem.framework.streams_by_group { table } else { reducing - early };
                exchanged = exchanged.max(tied + rest);
            }
            let one = self.optimizer(&load);
            let first = if self.stages.is_first(work.stage) { loads[1].gathers } else { load.gathers / blocks };
            optimizer = optimizer.max(one - stage * forward);
            ready = ready.max(one + self.gathering(&load, first, work, one) - stage * forward);
        }
        Update {
            replicas: reduced + (ready - optimizer),
            between_stages: (exchanged - reduced).max(0.0),
            optimizer: optimizer + 2.0 * links.world.seconds(CollectiveKind::AllReduce, SCALAR_BYTES),
        }
    }

    /// Whether the stage has one of two copies of a tied table.
    fn shares_table(&self, stage: usize) -> bool {
        let ends = self.stages.is_first(stage) || self.stages.is_last(stage);
        self.problem.model.tied_head && self.stages.stages > 1 && ends
    }

    /// Seconds in which the two copies' gradients are summed.
    fn tied_seconds(&self, links: &Links) -> f64 {
        if !self.problem.model.tied_head || self.stages.stages == 1 {
            return 0.0;
        }
        let sizes = &self.block.sizes;
        let table = Parameter { kind: Kind::Weight, elements: sizes.table / sizes.z };
        let shards = self.sharding.shards_gradient(table);
        let elements = if shards { self.sharding.held(table).shard } else { table.elements };
        links.pipe.exchange_seconds((elements * self.problem.framework.states.sent_gradient) as f64)
    }

    /// Adds so many parameters of one kind and size.
    fn load(&self, load: &mut Load, links: &Links, parameter: Parameter, count: f64) {
        let (sharding, states) = (&self.sharding, self.problem.framework.states);
        let held = sharding.held(parameter);
        load.updated += count * held.shard as f64;
        load.pieces += count;
        let scattered = sharding.zero != Zero::Off;
        let stored = held.padded as f64;
        if scattered {
            load.gathers += count * self.bucketed(links, CollectiveKind::AllGather, stored * states.weight as f64);
        }
        let kind = if scattered { CollectiveKind::ReduceScatter } else { CollectiveKind::AllReduce };
        let done = sharding.shards_gradient(parameter);
        let rows = parameter.kind.row_group();
        // In buckets, all are reduced with weights.
        let buckets = self.problem.framework.gradient_bucket.is_some();
        if !done && (scattered || rows.is_none() || buckets) {
            load.weights += count * self.bucketed(links, kind, stored * states.sent_gradient as f64);
        }
        if let Some(rows) = rows.filter(|_| !buckets) {
            let elements = if done { held.shard } else { parameter.elements };
            let bytes = (elements * states.sent_gradient) as f64;
            load.rows[rows] += count * links.rows[rows].seconds(CollectiveKind::AllReduce, bytes);
        }
    }

    /// A collective over the ranks that hold the same parameters, or the part that these bytes have of a bucket's.
    fn bucketed(&self, links: &Links, kind: CollectiveKind, bytes: f64) -> f64 {
        match self.problem.framework.gradient_bucket {
            None => links.replicas.seconds(kind, bytes),
            Some(bucket) => bytes / bucket as f64 * links.replicas.seconds(kind, bucket as f64),
        }
    }

    /// Gradients are reduced after the last microbatch, or under its backward pass but for the last block's.
    fn hidden_reduction(&self, load: &Load, backward: f64, blocks: f64) -> f64 {
        let all = match self.problem.framework.streams_by_group {
            true => load.rows.into_iter().fold(load.weights, f64::max),
            false => load.weights + load.rows.iter().sum::<f64>(),
        };
        let hides = self.problem.framework.reduces_under_backward && self.c.overlap.reduce_scatter;
        if hides { (all / blocks).max(all - backward * (blocks - 1.0) / blocks) } else { all }
    }

    /// Parameters are gathered after the update, or under the next forward pass but for what it needs `first`.
    fn gathering(&self, load: &Load, first: f64, work: &Work, optimizer: f64) -> f64 {
        let blocks = work.makeup.blocks.max(1.0);
        let (all, hidden) = (load.gathers, work.seconds[0] * (blocks - 1.0) / blocks);
        match self.problem.framework.gathers_under_forward {
            Hiding::Always => (first - optimizer).max(all - optimizer - hidden).max(0.0),
            Hiding::Switched if self.c.overlap.all_gather => first.max(all - hidden),
            Hiding::Switched | Hiding::Never => all,
        }
    }

    /// The optimizer reads gradient and states and writes states and weight; where no master weight is among the states
    /// it reads the weight, too. The norm reads the gradient.
    fn optimizer(&self, load: &Load) -> f64 {
        let states = self.problem.framework.states;
        let weight = if states.optimizer >= 12 { states.weight } else { 2 * states.weight };
        let bytes = 2 * states.gradient + 2 * states.optimizer + weight;
        self.problem.rates.traffic(load.updated * bytes as f64, 2.0 * load.pieces).seconds()
    }
}

impl Load {
    /// So many of it.
    fn times(self, count: f64) -> Self {
        let Self { weights, rows, gathers, updated, pieces } = self;
        Self {
            weights: count * weights,
            rows: rows.map(|seconds| count * seconds),
            gathers: count * gathers,
            updated: count * updated,
            pieces: count * pieces,
        }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.weights += other.weights;
        self.rows.iter_mut().zip(other.rows).for_each(|(sum, more)| *sum += more);
        self.gathers += other.gathers;
        self.updated += other.updated;
        self.pieces += other.pieces;
    }
}
