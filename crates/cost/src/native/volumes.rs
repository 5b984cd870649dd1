//! What a rank sends, computes and sweeps over in a step, as whole numbers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use quadrille_spec::{Axis, AxisSet, CollectiveKind, FlopsLedger, KeepWeights, Recompute, Schedule, Zero};

use super::operations::{
    Core, Group, Panels, Pass, Product, Sink, Sizes, Slot, Sweep, Swept, Values, backward_weights, forward_weights,
};
use super::parameters::{Kind, Parameter, Sharding};
use super::stages::Stages;
use super::{Candidate, Problem};

/// Bytes of a scalar that is reduced in f64.
const SCALAR_BYTES: u64 = 8;

/// Calls of a collective and the bytes of their payloads: of the whole buffer on a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Volume {
    /// Number of calls.
    pub calls: u64,
    /// Bytes of all of them.
    pub payload_bytes: u64,
}

/// What a rank of a stage sends, computes and sweeps over in a step. For [`super::Framework::QUADRILLE`] these are the
/// numbers of the step program's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volumes {
    /// By axes and kind; of groups of several ranks only.
    pub transfers: BTreeMap<(AxisSet, CollectiveKind), Volume>,
    /// FLOPs by kind of operation.
    pub flops: FlopsLedger,
    /// Elements that element-wise operations sweep over, by the operation's name.
    pub elements: BTreeMap<Cow<'static, str>, u64>,
}

impl Problem {
    /// What a rank of `stage` sends, computes and sweeps over in a step; of ranks whose ZeRO shards differ in length, one
    /// with the longest.
    pub fn volumes(&self, c: &Candidate, stage: usize) -> Volumes {
        let sizes = self.sizes(c);
        let microbatches = c.microbatches(self.global_batch) as u64;
        let mut counter = Counter {
            sizes: &sizes,
            sharding: Sharding::of(c),
            replicating: replicating(c),
            keeps_weights: c.keep_weights == KeepWeights::Step,
            repeats: 0,
            microbatches,
            first_use: false,
            volumes: Volumes::default(),
        };
        let stages = Stages::of(&self.model, c);
        for chunk in 0..stages.chunks {
            counter.piece(c, self.model.tied_head, stages, chunk * stages.stages + stage);
        }
        counter.update(c, self.model.tied_head, stages, stage);
        if c.schedule == Schedule::MessageDriven {
            let context = (c.size(Axis::Context) > 1).then_some(Axis::Context);
            let axes: AxisSet = [Axis::X, Axis::Y, Axis::Z].into_iter().chain(context).collect();
            let members = axes.iter().map(|axis| c.size(axis) as u64).product();
            counter.add(axes, CollectiveKind::Broadcast, members, SCALAR_BYTES, 2 * microbatches);
        }
        counter.volumes
    }
}

/// The axes that hold the same parameters, of those above 1.
fn replicating(c: &Candidate) -> AxisSet {
    [Axis::Context, Axis::Data].into_iter().filter(|axis| c.size(*axis) > 1).collect()
}

struct Counter<'a> {
    sizes: &'a Sizes,
    sharding: Sharding,
    replicating: AxisSet,
    keeps_weights: bool,
    /// How often what is told happens in a pass over a microbatch: for every block of a piece.
    repeats: u64,
    microbatches: u64,
    /// Whether weights are needed for the first time.
    first_use: bool,
    volumes: Volumes,
}

impl Counter<'_> {
    fn add(&mut self, axes: AxisSet, kind: CollectiveKind, members: u64, payload_bytes: u64, calls: u64) {
        if members > 1 && calls > 0 {
            let volume = self.volumes.transfers.entry((axes, kind)).or_default();
            volume.calls += calls;
            volume.payload_bytes += calls * payload_bytes;
        }
    }

    /// Passes of all overlap chunks.
    fn token_passes(&self) -> u64 {
        self.repeats * self.microbatches * self.sizes.chunks
    }

    fn swept(&mut self, name: &'static str, elements: u64) {
        *self.volumes.elements.entry(name.into()).or_default() += elements;
    }

    /// Tells of a pass `repeats` times.
    fn pass(&mut self, repeats: usize, weights: &[u64], tell: impl FnOnce(&mut Pass<'_, Self>)) {
        self.repeats = repeats as u64;
        let sizes = self.sizes;
        if repeats > 0 {
            tell(&mut Pass::new(sizes, self, weights, true));
        }
    }

    /// The passes of a microbatch through a piece of layers.
    fn piece(&mut self, c: &Candidate, tied: bool, stages: Stages, piece: usize) {
        let s = self.sizes;
        let (blocks, last) = (stages.blocks_of(piece), piece + 1 == stages.pieces());
        let tied = tied && stages.pieces() == 1;
        let pipe = Axis::Pipe.only();
        let message = s.message() * s.framework.activation_bytes;
        let messages = s.chunks * self.microbatches;
        for there in [piece > 0, !last] {
            if there {
                self.add(pipe, CollectiveKind::Receive, c.size(Axis::Pipe) as u64, message, messages);
                self.add(pipe, CollectiveKind::Send, c.size(Axis::Pipe) as u64, message, messages);
                self.pass(1, &[], |pass| {
                    pass.receive();
                    pass.send();
                });
            }
        }
        if piece > 0 && blocks > 0 && s.gathers_received_again() {
            self.pass(1, &[], |pass| pass.receive());
        }
        self.first_use = true;
        if piece == 0 {
            self.pass(1, &[s.table], |pass| pass.embedding());
        }
        let (weights, count) = forward_weights(s);
        self.pass(blocks, &weights[..count], |pass| pass.block(Values::all(s), Values::kept(s)));
        self.first_use = false;
        let segments = match c.recompute {
            Recompute::Full { every } => blocks.div_ceil(every),
            Recompute::None | Recompute::Selective => blocks,
        };
        for (repeats, output) in [(segments, s.framework.repeats_whole_segments), (blocks - segments, true)] {
            let again = Values::again(s, output);
            let (weights, count) = backward_weights(s, again);
            self.pass(repeats, &weights[..count], |pass| pass.block_backward(again));
        }
        if self.sharding.zero == Zero::Gradients {
            self.sum_copies(s.qkv.inputs / s.z, blocks as u64 * self.microbatches);
        }
        if c.schedule == Schedule::ZeroBubble {
            // The gradients of the residual stream that put-off products still read.
            self.pass(2 * blocks, &[], |pass| pass.sweep(Sweep::Accumulate, s.stream(), 2 * s.stream()));
        }
        if last {
            self.first_use = !tied;
            self.pass(1, &[s.table], |pass| pass.head());
            self.first_use = false;
            self.pass(1, &[s.table], |pass| pass.head_backward(tied));
        }
        if piece == 0 {
            self.pass(1, &[s.table], |pass| pass.embedding_backward(tied));
        }
    }

    /// What is done once per step.
    fn update(&mut self, c: &Candidate, tied: bool, stages: Stages, stage: usize) {
        let s = self.sizes;
        let (first, last) = (stage == 0, stage + 1 == stages.stages);
        let blocks = stages.blocks_on(stage) as u64;
        s.block_parameters(|parameter, count| self.update_parameters(c, parameter, blocks * count, false));
        if self.sharding.zero != Zero::Gradients {
            self.sum_copies(s.qkv.inputs / s.z, blocks);
        }
        self.sum_copies(1, if s.biases { blocks } else { 0 });
        let shared = tied && stages.stages > 1;
        let mut is_table = shared;
        if first {
            s.embedding_parameters(|parameter, count| {
                self.update_parameters(c, parameter, count, std::mem::take(&mut is_table));
            });
        }
        if last {
            let has_table = !(tied && first);
            s.head_parameters(has_table, |parameter, count| {
                self.update_parameters(c, parameter, count, shared && parameter.kind == Kind::Weight);
            });
        }
        let split = |axis: &Axis| c.size(*axis) > 1;
        let optional = [Axis::Context, Axis::Pipe].into_iter().filter(split);
        let rows: AxisSet = [Axis::Z, Axis::Data].into_iter().chain(optional).collect();
        // Predicted numbers lie where the rows of the residual stream do.
        let rows = if s.patches { rows.union(self.summed(c, Kind::PatchWeight)) } else { rows };
        // The loss with its count, and the norm.
        for (axes, scalars) in [(rows, 2), (AxisSet::WORLD, 1)] {
            self.once(c, axes, CollectiveKind::AllReduce, scalars * SCALAR_BYTES, 1);
        }
    }

    /// The sum of the gradients of keys and values that several ranks along x hold, of so many rows of a parameter.
    fn sum_copies(&mut self, rows: u64, times: u64) {
        let s = self.sizes;
        if s.key_copies == 1 || times == 0 {
            return;
        }
        let elements = rows * s.key_value_cols;
        let bytes = elements * s.framework.states.sent_gradient;
        self.add(Axis::X.only(), CollectiveKind::AllReduce, s.key_copies, bytes, times);
        self.swept(Sweep::PackKeysValues.name(), times * elements);
        self.swept(Sweep::UnpackKeysValues.name(), times * elements);
    }

    fn once(&mut self, c: &Candidate, axes: AxisSet, kind: CollectiveKind, payload_bytes: u64, calls: u64) {
        let members = axes.iter().map(|axis| c.size(axis) as u64).product();
        self.add(axes, kind, members, payload_bytes, calls);
    }

    /// The reductions of the gradients of so many parameters, their update, and ZeRO's gathers; `shared`: with the other
    /// copy of a tied table.
    fn update_parameters(&mut self, c: &Candidate, parameter: Parameter, count: u64, shared: bool) {
        let (states, sharding) = (self.sizes.framework.states, self.sharding);
        let sharded = sharding.shards_gradient(parameter);
        let held = sharding.held(parameter);
        let stored = if sharded { held.shard } else { parameter.elements };
        if shared {
            self.add(Axis::Pipe.only(), CollectiveKind::AllReduce, 2, stored * states.sent_gradient, count);
        }
        let scattered = if sharding.zero == Zero::Off { AxisSet::EMPTY } else { self.replicating };
        let summed = self.summed(c, parameter.kind).without(scattered);
        self.once(c, summed, CollectiveKind::AllReduce, stored * states.sent_gradient, count);
        if sharding.zero != Zero::Off {
            let whole = held.padded;
            if !sharded {
                self.once(c, scattered, CollectiveKind::ReduceScatter, whole * states.sent_gradient, count);
            }
            self.once(c, scattered, CollectiveKind::AllGather, whole * states.weight, count);
        }
        self.swept(Sweep::AdamW.name(), count * held.shard);
    }

    /// The axes that the rows cut from which a gradient is summed.
    fn summed(&self, c: &Candidate, kind: Kind) -> AxisSet {
        let context = (c.size(Axis::Context) > 1).then_some(Axis::Context);
        let replicas: AxisSet = [Axis::Data].into_iter().chain(context).collect();
        kind.row_group().map_or(replicas, |group| replicas.union(self.sizes.row_groups()[group]))
    }

    fn flops(&mut self, product: Product, flops: u64) {
        let ledger = &mut self.volumes.flops;
        *match product {
            Product::Forward => &mut ledger.gemm_forward,
            Product::InputGradient => &mut ledger.gemm_input_gradient,
            Product::WeightGradient => &mut ledger.gemm_weight_gradient,
        } += flops;
    }
}

impl Sink for Counter<'_> {
    fn sweep(&mut self, swept: Swept) {
        let passes = if swept.once { self.repeats * self.microbatches } else { self.token_passes() };
        self.swept(swept.sweep.name(), passes * swept.elements);
    }

    fn product(&mut self, product: Product, [m, n, k]: [u64; 3]) {
        self.flops(product, self.token_passes() * 2 * m * n * k);
    }

    fn attention(&mut self, core: Core) {
        let flops = self.token_passes() * 4 * self.sizes.seq_len * core.outputs;
        match core.backward {
            false => self.volumes.flops.attention_forward += flops,
            true => self.volumes.flops.attention_backward += 2 * flops,
        }
    }

    fn batched_product(&mut self, backward: bool, [m, n, k]: [u64; 3], heads: u64) {
        let flops = self.token_passes() * heads * 2 * m * n * k;
        match backward {
            false => self.volumes.flops.attention_forward += flops,
            true => self.volumes.flops.attention_backward += flops,
        }
    }

    fn issue(&mut self, _: Slot, kind: CollectiveKind, group: Group, elements: u64, element_bytes: u64) {
        let members = self.sizes.members(group);
        self.add(group.axes(), kind, members, elements * element_bytes, self.token_passes());
    }

    fn wait(&mut self, _: Slot) {}

    fn weight(&mut self, elements: u64, _: Option<u64>) {
        let passes = match (self.keeps_weights, self.first_use) {
            (false, _) => self.repeats * self.microbatches,
            (true, true) => self.repeats,
            (true, false) => 0,
        };
        let bytes = elements * self.sizes.framework.states.gathered_weight;
        self.add(Axis::Z.only(), CollectiveKind::AllGather, self.sizes.z, bytes, passes);
    }

    fn weight_done(&mut self, _: u64) {}

    fn scatter(&mut self, elements: u64) {
        let passes = self.repeats * self.microbatches;
        let bytes = self.sizes.framework.states.sent_gradient;
        let parameter = Parameter { kind: Kind::Weight, elements: elements / self.sizes.z };
        self.add(Axis::Z.only(), CollectiveKind::ReduceScatter, self.sizes.z, elements * bytes, passes);
        let sharded = self.sharding.shards_gradient(parameter);
        let held = self.sharding.held(parameter);
        if sharded {
            let whole = held.padded * bytes;
            self.add(self.replicating, CollectiveKind::ReduceScatter, self.sharding.replicas, whole, passes);
        }
        if sharded || self.sizes.z > 1 {
            let stored = if sharded { held.shard } else { parameter.elements };
            self.swept(Sweep::Accumulate.name(), passes * stored);
        }
    }

    fn panels(&mut self, panels: &Panels) {
        let [m, n, k] = panels.shape;
        self.flops(panels.product, self.token_passes() * panels.count * 2 * m * n * k);
        let broadcasts = panels.broadcasts.into_iter().flatten().map(|travel| (travel, CollectiveKind::Broadcast));
        for (travel, kind) in broadcasts.chain(panels.reduce.map(|travel| (travel, CollectiveKind::Reduce))) {
            let passes = if travel.once { self.repeats * self.microbatches } else { self.token_passes() };
            let members = self.sizes.members(travel.group);
            let bytes = travel.elements * self.sizes.framework.activation_bytes;
            self.add(travel.group.axes(), kind, members, bytes, passes * panels.count);
            let sweep = if kind == CollectiveKind::Broadcast { Sweep::CopyPanel } else { Sweep::StorePanel };
            self.swept(sweep.name(), passes * (panels.count / members) * travel.elements);
        }
    }

    fn take(&mut self, _: u64) {}

    fn give(&mut self, _: u64) {}

    fn give_kept(&mut self, _: u64) {}

    fn give_needed(&mut self, _: bool, _: u64) {}

    fn copy_needed(&mut self, _: u64) {}

    fn take_gradient(&mut self, _: u64) {}
}
