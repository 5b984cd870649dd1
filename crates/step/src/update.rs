//! After the last microbatch: what is still a partial sum is reduced, the gradient norm is taken, parameters move.

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Model, Offload};

use crate::buckets::{Bucket, buckets};
use crate::builder::Builder;
use crate::operation::{Collective, Members, Operation, Reduction, Scalar, When, Write};
use crate::shared_keys::CopiesSum;
use crate::{BucketId, BucketRun, Layer, Parameter, ParameterId, Practice, Purpose, ShardRun, StepError, Value, kind};

/// A collective with what goes right before and after it.
struct Step {
    before: Option<Operation>,
    collective: Collective,
    after: Option<Operation>,
}

impl Step {
    fn issue(&self, b: &mut Builder) {
        self.before.into_iter().chain([Operation::Issue(self.collective)]).for_each(|each| b.push(each));
    }

    fn wait(&self, b: &mut Builder) {
        [Operation::Wait(self.collective)].into_iter().chain(self.after).for_each(|each| b.push(each));
    }
}

/// What makes the gradient of a parameter complete.
struct Reduced {
    layer: Layer,
    parameter: ParameterId,
    steps: Vec<Step>,
}

/// ZeRO's gathers of updated shards that are under way.
#[derive(Default)]
struct Gathers {
    /// Those of whole weights, which are waited for at the end, or when they are used next.
    of_weights: Vec<(Layer, Collective)>,
    /// That of the pruned weight which was updated last: it is waited for when the next one is, and then expanded.
    of_kept: Option<(Layer, Collective, kind::Expand)>,
}

impl Gathers {
    /// Kept elements that all have come go to their places.
    fn expand(&mut self, b: &mut Builder) {
        if let Some((layer, gather, expand)) = self.of_kept.take() {
            b.layer = layer;
            b.push(Operation::Wait(gather));
            b.push(expand);
        }
    }
}

/// Emits the update section. Every reduction is a sum, over the axes that the gradient's shardings give.
pub(crate) fn update(b: &mut Builder) -> Result<(), StepError> {
    let mut gradients = Vec::new();
    for parameter in (0..b.parameters.len()).map(ParameterId) {
        gradients.push(Reduced { layer: b.parameters[parameter.0].layer, parameter, steps: reductions(b, parameter)? });
    }
    let buckets = plan_buckets(b);
    let mut gathers = Gathers::default();
    let (trained, others): (Vec<_>, Vec<_>) =
        (0..b.parameters.len()).map(ParameterId).partition(|parameter| b.parameters[parameter.0].is_trained());
    if b.layout.optimizer_overlap {
        // The loss is reduced first: all factors of the update but clipping follow from it.
        reduce_loss(b);
        fetch_first(b, &buckets, false);
        reduce_gradients(b, &gradients, &buckets);
        reduce_norm(b);
        settle(b, &buckets);
        others.iter().for_each(|parameter| follow_loads(b, *parameter));
        (0..b.parameters.len()).for_each(|index| gather(b, ParameterId(index), &mut gathers));
    } else {
        fetch_first(b, &buckets, false);
        reduce_gradients(b, &gradients, &[]);
        reduce_loss(b);
        reduce_norm(b);
        for parameter in others {
            follow_loads(b, parameter);
            gather(b, parameter, &mut gathers);
        }
        (0..buckets.len()).for_each(|index| move_bucket(b, &buckets, index, Some(&mut gathers)));
        await_stores(b, &buckets);
        for parameter in trained.into_iter().filter(|_| buckets.is_empty()) {
            move_parameter(b, parameter, None, true);
            gather(b, parameter, &mut gathers);
        }
    }
    b.buckets = buckets;
    gathers.expand(b);
    finish(b, &gathers.of_weights);
    Ok(())
}

/// First reductions are under way together; those that build on others follow in turn. Of the buckets `attempted` each is
/// updated as soon as its gradients are there.
fn reduce_gradients(b: &mut Builder, gradients: &[Reduced], attempted: &[Bucket]) {
    for Reduced { layer, steps, .. } in gradients {
        b.layer = *layer;
        if let Some(first) = steps.first() {
            first.issue(b);
        }
    }
    let mut updated = 0;
    for Reduced { layer, parameter, steps } in gradients {
        b.layer = *layer;
        for (index, reduction) in steps.iter().enumerate() {
            if index > 0 {
                reduction.issue(b);
            }
            reduction.wait(b);
        }
        if b.parameters[parameter.0].is_trained() {
            let gradient = b.parameters[parameter.0].reduced;
            b.push(kind::SumSquares { parameter: *parameter, gradient });
        }
        while attempted.get(updated).is_some_and(|bucket| bucket.ends_with(*parameter)) {
            move_bucket(b, attempted, updated, None);
            updated += 1;
        }
    }
}

fn reduce_norm(b: &mut Builder) {
    b.layer = Layer::Step;
    b.push(kind::ReduceScalar { scalar: Scalar::GradientNormSquared, axes: AxisSet::WORLD });
}

/// Issues and waits for gathers, as far as the practice does so here.
fn finish(b: &mut Builder, gathers: &[(Layer, Collective)]) {
    let each = |b: &mut Builder, operation: fn(Collective) -> Operation| {
        for (layer, gather) in gathers {
            b.layer = *layer;
            b.push(operation(*gather));
        }
    };
    if !b.practice.gathers_in_turn {
        each(b, Operation::Issue);
    }
    // Else the next step's first use waits.
    if !b.practice.gathers_under_forward {
        each(b, Operation::Wait);
    }
}

/// Cuts what the rank updates into buckets, if its states lie in the host's memory.
fn plan_buckets(b: &Builder) -> Vec<Bucket> {
    if b.layout.offload == Offload::None {
        return Vec::new();
    }
    let formats = b.practice.formats;
    let trained = b.parameters.iter().enumerate().filter(|(_, parameter)| parameter.is_trained());
    let shards = trained.map(|(index, parameter)| {
        let Value { local_elements, storage, .. } = &b.values[parameter.updated.0];
        // An update that may be taken back needs a master in any case.
        let has_master = b.layout.optimizer_overlap || b.storages[storage.0].element_bytes < formats.masters;
        (ParameterId(index), *local_elements, has_master)
    });
    buckets(shards, b.layout.bucket)
}

/// Begins to bring as many buckets as there is room for.
fn fetch_first(b: &mut Builder, buckets: &[Bucket], masters: bool) {
    b.layer = Layer::Step;
    (0..buckets.len().min(2)).for_each(|bucket| b.push(kind::Fetch { bucket: BucketId(bucket), masters }));
}

/// Updates a bucket while the one before it goes back and the next one comes: there is room for two. When all of a parameter is
/// updated, its gather is one of `gathers`, if there are any yet.
fn move_bucket(b: &mut Builder, buckets: &[Bucket], index: usize, mut gathers: Option<&mut Gathers>) {
    let bucket = BucketId(index);
    b.layer = Layer::Step;
    b.push(kind::AwaitFetch { bucket });
    for (run, of) in buckets[index].runs.iter().enumerate() {
        move_parameter(b, of.parameter, Some(BucketRun { bucket, run }), of.first == 0);
        let is_done = of.range().end == b.values[b.parameters[of.parameter.0].updated.0].local_elements;
        if let Some(gathers) = gathers.as_deref_mut().filter(|_| is_done) {
            gather(b, of.parameter, gathers);
        }
    }
    b.layer = Layer::Step;
    b.push(kind::Store { bucket });
    if index + 2 < buckets.len() {
        b.push(kind::Fetch { bucket: BucketId(index + 2), masters: false });
    }
}

fn await_stores(b: &mut Builder, buckets: &[Bucket]) {
    b.layer = Layer::Step;
    (0..buckets.len()).for_each(|bucket| b.push(kind::AwaitStore { bucket: BucketId(bucket) }));
}

/// The norm is known, and with it whether what was updated stays, is updated again from the states before it, or is taken
/// back: weights are rounded masters then.
fn settle(b: &mut Builder, buckets: &[Bucket]) {
    await_stores(b, buckets);
    decided(b, When::Repeated, |b| {
        fetch_first(b, buckets, false);
        (0..buckets.len()).for_each(|index| move_bucket(b, buckets, index, None));
        await_stores(b, buckets);
    });
    decided(b, When::Restored, |b| {
        fetch_first(b, buckets, true);
        (0..buckets.len()).for_each(|index| restore_bucket(b, buckets, index));
    });
    decided(b, When::Applied, |b| b.push(kind::Adopt {}));
}

/// Emits what is executed only after some verdicts.
fn decided(b: &mut Builder, when: When, emit: impl FnOnce(&mut Builder)) {
    let before = b.ops.len();
    emit(b);
    b.ops[before..].iter_mut().for_each(|op| op.when = when);
}

fn restore_bucket(b: &mut Builder, buckets: &[Bucket], index: usize) {
    let bucket = BucketId(index);
    b.layer = Layer::Step;
    b.push(kind::AwaitFetch { bucket });
    for (run, ShardRun { parameter, .. }) in buckets[index].runs.iter().enumerate() {
        let Parameter { layer, updated, .. } = b.parameters[parameter.0];
        b.layer = layer;
        b.push(kind::Restore { parameter: *parameter, run: BucketRun { bucket, run }, value: updated });
    }
    b.layer = Layer::Step;
    if index + 2 < buckets.len() {
        b.push(kind::Fetch { bucket: BucketId(index + 2), masters: true });
    }
}

/// Updates a parameter, or a run of it, which may be the one that it `begins` with.
fn move_parameter(b: &mut Builder, parameter: ParameterId, run: Option<BucketRun>, begins: bool) {
    let Parameter { layer, value, updated, compressed, reduced, .. } = b.parameters[parameter.0];
    b.layer = layer;
    if begins && compressed.is_some() {
        b.push(kind::Compress { parameter, input: value, output: updated, write: Write::Overwrite });
    }
    b.push(kind::AdamW { parameter, run, value: updated, gradient: reduced });
}

/// Moves what is not trained: the bias of a router, by the loads of its experts.
fn follow_loads(b: &mut Builder, parameter: ParameterId) {
    let Parameter { layer, updated, reduced, follows, .. } = b.parameters[parameter.0];
    if let Some(block) = follows {
        b.layer = layer;
        b.push(kind::FollowLoads { block, loads: reduced, bias: updated });
    }
}

/// Notes ZeRO's gather of a parameter all of whose shard is updated, and begins it if gathers are in turn. Kept elements of a
/// pruned one go to their places.
fn gather(b: &mut Builder, parameter: ParameterId, gathers: &mut Gathers) {
    let Parameter { layer, value, updated, compressed, .. } = b.parameters[parameter.0];
    if let Some(compressed) = compressed {
        b.layer = layer;
        let expand = kind::Expand { parameter, input: compressed, output: value };
        if updated == compressed {
            b.push(expand);
            return;
        }
        let gather = b.gather_updated(compressed);
        b.push(Operation::Issue(gather));
        gathers.expand(b);
        gathers.of_kept = Some((layer, gather, expand));
    } else if updated != value {
        let gather = b.gather_updated(value);
        gathers.of_weights.push((layer, gather));
        if b.practice.gathers_in_turn {
            b.layer = layer;
            b.push(Operation::Issue(gather));
        }
    }
}

/// True if the tokens and targets of a step are counted: routers need their numbers.
pub(crate) fn counts_batch(model: &Model, practice: Practice) -> bool {
    practice.counts_tokens && model.patch_values.is_none() && model.has_experts()
}

/// The numbers of tokens and targets of the step on every rank, before its first pass, if routers need them.
pub(crate) fn count_batch(b: &mut Builder) {
    if b.purpose == Purpose::Training && counts_batch(b.model, b.practice) {
        b.layer = Layer::Step;
        b.push_once(kind::ReduceScalar { scalar: Scalar::Batch, axes: b.layout.row_axes().collect() });
    }
}

/// The loss of the whole batch on every rank.
pub(crate) fn reduce_loss(b: &mut Builder) {
    b.layer = Layer::Step;
    b.push(kind::ReduceScalar { scalar: Scalar::Loss, axes: loss_axes(b) });
    if b.model.has_experts() {
        let pipe = [Axis::Pipe].into_iter().filter(|axis| b.axis_size(*axis) > 1);
        let axes = b.residual_sharding().rows.into_iter().chain(pipe).collect();
        b.push(kind::ReduceScalar {
            scalar: Scalar::Routers { experts: b.model.routed_experts(b.model.layers()) },
            axes,
        });
    }
}

/// What makes a parameter's gradient complete, in order: the sum with the copies of its columns on other ranks, the sum
/// with the other copy of a tied table, the sum over axes, and under ZeRO its scattering over the axes that replicate it.
fn reductions(b: &mut Builder, parameter: ParameterId) -> Result<Vec<Step>, StepError> {
    let mut steps = Vec::new();
    let Parameter { gradient, reduced, .. } = b.parameters[parameter.0];
    // A gradient that ZeRO cuts in every pass has been summed there.
    let cut_in_passes = gradient == reduced && b.shards_gradients(b.sharding(b.parameters[parameter.0].value));
    if !cut_in_passes && let Some(CopiesSum { pack, sum, unpack }) = b.copies_sum(parameter, gradient)? {
        steps.push(Step { before: pack, collective: sum, after: unpack });
    }
    let collectives = collectives(b, &b.parameters[parameter.0]).into_iter();
    steps.extend(collectives.map(|collective| Step { before: None, collective, after: None }));
    Ok(steps)
}

fn collectives(b: &Builder, parameter: &Parameter) -> Vec<Collective> {
    let size = |axes| b.layout.grid.size_of(axes);
    let gradient = parameter.gradient;
    let collective = |kind, axes, members, output| Collective {
        kind,
        axes,
        members,
        reduction: Reduction::Sum,
        input: gradient,
        output,
    };
    // What is summed whole contains the shard.
    let scattered = parameter.reduced != gradient && b.practice.sums_whole.is_none();
    let sharded = if scattered { b.sharing(b.sharding(gradient)) } else { AxisSet::EMPTY };
    let summed = parameter.unreduced.without(sharded);
    let mut collectives = Vec::new();
    if b.model.tied_head && b.layout.pieces() > 1 && parameter.name == "embedding.table" {
        collectives.push(collective(CollectiveKind::AllReduce, Axis::Pipe.only(), Members::Ends, gradient));
    }
    if size(summed) > 1 {
        collectives.push(collective(CollectiveKind::AllReduce, summed, Members::All, gradient));
    }
    if scattered {
        collectives.push(collective(CollectiveKind::ReduceScatter, sharded, Members::All, parameter.reduced));
    }
    collectives
}

/// Ranks that differ on these axes have different parts of the loss.
fn loss_axes(b: &Builder) -> AxisSet {
    let split = |axis: &Axis| b.axis_size(*axis) > 1;
    // Logits are gathered over the mesh, predicted numbers lie where the residual stream's rows do.
    let rows = if b.model.patch_values.is_some() { b.residual_sharding().rows } else { b.rows() };
    rows.into_iter().chain([Axis::Pipe].into_iter().filter(split)).collect()
}
