//! Gradients of weights: where products sum them, and how they come to the rank's shard.

use quadrille_spec::{Axis, AxisSet, CollectiveKind};

use crate::builder::Builder;
use crate::operation::{Reduction, Write};
use crate::value::{Format, Home};
use crate::{ParameterId, StepError, Value, ValueId, kind};

/// Where the gradient of a whole weight tile is summed: a buffer if the stored gradient is a part of it, else the
/// gradient.
pub(crate) fn weight_tile(b: &mut Builder, weight: ParameterId) -> Result<(ValueId, Write), StepError> {
    let gradient = b.parameters[weight.0].gradient;
    let is_pruned = b.values[gradient.0].pruned.is_some();
    let stored = *b.sharding(b.parameters[weight.0].value);
    if !b.cuts_flat(weight) && !b.shards_gradients(&stored) && !is_pruned {
        return Ok((gradient, Write::AccumulateMicrobatches));
    }
    let name = format!("{} tile", b.values[gradient.0].name);
    let tile = b.weight_value(name, b.shape(gradient), stored.whole(), Home::buffer(Format::Sent))?;
    if !b.cuts_flat(weight) && !is_pruned {
        b.pad(b.values[tile.0].storage, gradient);
    }
    Ok((tile, Write::Overwrite))
}

/// Reduce-scatters the tile over z, compresses it if the weight is pruned, scatters it with sharded gradients over the axes
/// that replicate it, and adds the shard to the gradient. What is not reduced here is reduced once per step.
pub(crate) fn reduce_weight(
    b: &mut Builder,
    weight: ParameterId,
    tile: ValueId,
    summed: &[Axis],
) -> Result<(), StepError> {
    let stored = *b.sharding(b.parameters[weight.0].value);
    let sharded = if b.shards_gradients(&stored) { b.sharing(&stored) } else { AxisSet::EMPTY };
    // Sums over axes that cut the weight are done: by the scatter over z, or panel by panel.
    let cut = stored.sharded();
    let unreduced = summed.iter().copied().collect::<AxisSet>().without(cut).without(sharded);
    let parameter = &mut b.parameters[weight.0];
    parameter.unreduced = parameter.unreduced.union(unreduced);
    let gradient = parameter.gradient;
    if tile == gradient {
        return Ok(());
    }
    let mut shard = tile;
    let Value { name, pruned, .. } = b.values[gradient.0].clone();
    if b.cuts_flat(weight) {
        shard = b.weight_value(format!("{name} shard"), b.shape(gradient), stored, Home::buffer(Format::Sent))?;
        if !sharded.is_empty() && pruned.is_none() {
            b.pad(b.values[shard.0].storage, gradient);
        }
        b.collective(CollectiveKind::ReduceScatter, Axis::Z.only(), Reduction::Sum, tile, shard);
    }
    if !sharded.is_empty() {
        b.sum_copies(weight, shard)?;
    }
    if let Some(kept) = pruned {
        if sharded.is_empty() {
            let output = gradient;
            let write = Write::AccumulateMicrobatches;
            b.push(kind::Compress { parameter: weight, input: shard, output, write });
            return Ok(());
        }
        let output = b.weight_value(format!("{name} kept"), b.shape(gradient), stored, Home::buffer(Format::Sent))?;
        b.prune(output, kept)?;
        b.pad(b.values[output.0].storage, gradient);
        b.push(kind::Compress { parameter: weight, input: shard, output, write: Write::Overwrite });
        shard = output;
    }
    if !sharded.is_empty() {
        let input = shard;
        let stored = *b.sharding(gradient);
        shard = b.weight_value(format!("{name} ZeRO shard"), b.shape(gradient), stored, Home::buffer(Format::Sent))?;
        pruned.map_or(Ok(()), |kept| b.prune(shard, kept))?;
        b.collective(CollectiveKind::ReduceScatter, sharded, Reduction::Sum, input, shard);
    }
    b.push(kind::Accumulate { input: shard, output: gradient, write: Write::AccumulateMicrobatches });
    Ok(())
}
