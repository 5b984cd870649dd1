//! After the last microbatch: what is still a partial sum is reduced, the gradient norm is taken, parameters move.

use std::ops::Range;

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Offload};

use crate::buckets::buckets;
use crate::builder::Builder;
use crate::operation::{Collective, Members, Operation, Reduction, Scalar, Write};
use crate::shared_keys::CopiesSum;
use crate::{BucketId, BucketRun, Layer, Parameter, ParameterId, StepError, Value, kind};

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

/// Emits the update section. Every reduction is a sum, over the axes that the gradient's shardings give.
pub(crate) fn update(b: &mut Builder) -> Result<(), StepError> {
    let mut steps = Vec::new();
    for index in 0..b.parameters.len() {
        steps.push((b.parameters[index].layer, ParameterId(index), reductions(b, ParameterId(index))?));
    }
    plan_buckets(b);
    // While gradients are reduced, as many buckets come as there is room for.
    b.layer = Layer::Step;
    (0..b.buckets.len().min(2)).for_each(|bucket| b.push(kind::Fetch { bucket: BucketId(bucket) }));
    // First reductions are under way together; those that build on others follow in turn.
    for (layer, _, reductions) in &steps {
        b.layer = *layer;
        if let Some(first) = reductions.first() {
            first.issue(b);
        }
    }
    for (layer, parameter, reductions) in &steps {
        b.layer = *layer;
        for (index, reduction) in reductions.iter().enumerate() {
            if index > 0 {
                reduction.issue(b);
            }
            reduction.wait(b);
        }
        let gradient = b.parameters[parameter.0].reduced;
        b.push(kind::SumSquares { parameter: *parameter, gradient });
    }
    reduce_loss(b);
    b.push(kind::ReduceScalar { scalar: Scalar::GradientNormSquared, axes: AxisSet::WORLD });
    let mut gathers = Gathers::default();
    if b.buckets.is_empty() {
        (0..b.parameters.len()).for_each(|index| move_parameter(b, ParameterId(index), None, &mut gathers));
    } else {
        move_buckets(b, &mut gathers);
    }
    gathers.expand(b);
    let each = |b: &mut Builder, operation: fn(Collective) -> Operation| {
        for (layer, gather) in &gathers.of_weights {
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
    Ok(())
}

/// Cuts what the rank updates into buckets, if its states lie in the host's memory.
fn plan_buckets(b: &mut Builder) {
    if b.layout.offload == Offload::None {
        return;
    }
    let formats = b.practice.formats;
    let shards = b.parameters.iter().enumerate().map(|(index, parameter)| {
        let Value { local_elements, storage, .. } = &b.values[parameter.updated.0];
        let has_master = b.storages[storage.0].element_bytes < formats.masters;
        (ParameterId(index), *local_elements, has_master)
    });
    b.buckets = buckets(shards, b.layout.bucket);
}

/// Every bucket is updated while the one before it goes back and the next one comes: there is room for two. The first ones are
/// on their way.
fn move_buckets(b: &mut Builder, gathers: &mut Gathers) {
    let all = std::mem::take(&mut b.buckets);
    for (index, bucket) in all.iter().enumerate() {
        let id = BucketId(index);
        b.layer = Layer::Step;
        b.push(kind::AwaitFetch { bucket: id });
        for (run, of) in bucket.runs.iter().enumerate() {
            move_parameter(b, of.parameter, Some((BucketRun { bucket: id, run }, of.range())), gathers);
        }
        b.layer = Layer::Step;
        b.push(kind::Store { bucket: id });
        if index + 2 < all.len() {
            b.push(kind::Fetch { bucket: BucketId(index + 2) });
        }
    }
    (0..all.len()).for_each(|bucket| b.push(kind::AwaitStore { bucket: BucketId(bucket) }));
    b.buckets = all;
}

/// ZeRO's gathers of updated weights that are under way.
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

/// Updates a parameter, or a run of it in its elements of the shard; when all of it is done, ZeRO's gather begins.
fn move_parameter(
    b: &mut Builder,
    parameter: ParameterId,
    run: Option<(BucketRun, Range<usize>)>,
    gathers: &mut Gathers,
) {
    let Parameter { layer, value, updated, compressed, reduced, .. } = b.parameters[parameter.0];
    b.layer = layer;
    let begins = run.as_ref().is_none_or(|(_, elements)| elements.start == 0);
    if begins && compressed.is_some() {
        b.push(kind::Compress { parameter, input: value, output: updated, write: Write::Overwrite });
    }
    let is_done = run.as_ref().is_none_or(|(_, elements)| elements.end == b.values[updated.0].local_elements);
    b.push(kind::AdamW { parameter, run: run.map(|(run, _)| run), value: updated, gradient: reduced });
    if !is_done {
        return;
    }
    if let Some(compressed) = compressed {
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
            b.push(Operation::Issue(gather));
        }
    }
}

/// The loss of the whole batch on every rank.
pub(crate) fn reduce_loss(b: &mut Builder) {
    b.layer = Layer::Step;
    b.push(kind::ReduceScalar { scalar: Scalar::Loss, axes: loss_axes(b) });
}

/// What makes a parameter's gradient complete, in order: the sum with the copies of its columns on other ranks, the sum
/// with the other copy of a tied table, the sum over axes, and under ZeRO its scattering over data and context.
fn reductions(b: &mut Builder, parameter: ParameterId) -> Result<Vec<Step>, StepError> {
    let mut steps = Vec::new();
    let Parameter { gradient, reduced, .. } = b.parameters[parameter.0];
    // A gradient that ZeRO cuts in every pass has been summed there.
    let cut_in_passes = b.shards_gradients() && gradient == reduced;
    // So has what is compressed there.
    let is_pruned = b.values[gradient.0].pruned.is_some();
    if !cut_in_passes
        && !is_pruned
        && let Some(CopiesSum { pack, sum, unpack }) = b.copies_sum(parameter, gradient)?
    {
        steps.push(Step { before: Some(pack), collective: sum, after: Some(unpack) });
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
    let scattered = parameter.reduced != gradient;
    let sharded = if scattered { b.layout.replicating() } else { AxisSet::EMPTY };
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
